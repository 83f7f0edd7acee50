"""How somebody comes into a group: invitation, request, welcome, seat; the inviter's side and the joiner's."""
