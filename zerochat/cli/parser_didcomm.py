"""The grammar of the verb for people who debug: looking into single DIDComm messages, opening and making them."""

from zerochat.cli.grammar import ENVELOPES, Parser, Verbs, add_verb

ENCRYPTIONS = ("A256CBC-HS512", "A256GCM", "XC20P")


def add_didcomm(verbs: "Verbs[Parser]") -> None:
    """Declare the verb didcomm with its three actions."""
    didcomm = add_verb(
        verbs,
        "didcomm",
        "look into a DIDComm message, open one, make one",
        "For people who debug: look into, open and make single DIDComm messages, in files or through pipes, of any\n"
        "agent that speaks DIDComm. No profile is used, and nothing is sent.",
        """
zerochat didcomm inspect message.dcem
zerochat didcomm unpack message.dcem --secrets mine.jwks
zerochat didcomm pack note.dcpm --to DID --from DID --secrets mine.jwks
""",
    )
    actions = didcomm.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    inspect = add_verb(
        actions,
        "inspect",
        "show a message's layers without opening them",
        "Show what everybody on the way can see of a message: its layers, headers, recipients, key ids, algorithms\n"
        "and sizes, and whether zerochat would read it. Needs no keys.",
        """
zerochat didcomm inspect message.dcem
curl -s https://example.com/message | zerochat didcomm inspect -
zerochat didcomm inspect message.dcsm --format jsonl | jq .signatures
""",
    )
    _message_file(inspect)
    unpack = add_verb(
        actions,
        "unpack",
        "open a message",
        "Open a message, and say how it was protected and by whom. Secret keys come from a JWK set, in which each key\n"
        "has the id that messages know it by (DID#KEY); nobody else may be able to read that file. Ends with 7 when\n"
        "the message does not open, or contradicts itself.",
        """
zerochat didcomm unpack message.dcsm
zerochat didcomm unpack message.dcem --secrets mine.jwks
zerochat didcomm unpack - --secrets mine.jwks --output note.dcpm <in.dcem
""",
    )
    _message_file(unpack)
    _keys(unpack)
    unpack.add_argument(
        "--lenient",
        action="store_true",
        help="also open anon(auth(sign)), which the specification forbids and has as an example",
    )
    _output_file(unpack, "where to put the plaintext, as it was written")
    pack = add_verb(
        actions,
        "pack",
        "sign or encrypt a message",
        "Make a signed or encrypted message of a plaintext. With --from and --to it is authcrypted, with --anon\n"
        "anoncrypted, with both authcrypted inside anoncrypted; with --sign it is signed, and then anoncrypted when\n"
        "there is a --to. Where the plaintext has no `from` or `to`, they are filled in.",
        """
zerochat didcomm pack note.dcpm --to DID --from DID --secrets mine.jwks
zerochat didcomm pack note.dcpm --to DID --anon --enc XC20P >note.dcem
zerochat didcomm pack note.dcpm --sign --from DID --secrets my.jwks >a.dcsm
zerochat didcomm pack - --envelope didcomm/v1 --to DID --anon <note.dcpm
""",
    )
    _message_file(pack)
    pack.add_argument("--to", metavar="DID", help="for whom to encrypt it, or for which of their keys (DID#KEY)")
    pack.add_argument(
        "--from", dest="sender", metavar="DID", help="who it is from; --secrets must have a key of theirs"
    )
    pack.add_argument(
        "--sign", action="store_true", help="sign it, so that the recipient can prove to others who wrote it"
    )
    pack.add_argument("--anon", action="store_true", help="an envelope that does not show who sent it")
    pack.add_argument(
        "--envelope",
        choices=ENVELOPES,
        default=ENVELOPES[0],
        help="DIDComm v2, or Aries RFC 0019 (default: %(default)s)",
    )
    pack.add_argument("--enc", choices=ENCRYPTIONS, help="how to anoncrypt (default: A256CBC-HS512)")
    _keys(pack)
    _output_file(pack, "where to put the message (default: standard output)")


def _message_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="the message, or - for standard input")


def _output_file(parser: Parser, text: str) -> None:
    parser.add_argument("--output", metavar="FILE", help=text)


def _keys(parser: Parser) -> None:
    parser.add_argument("--secrets", metavar="FILE", help="a JWK set with secret keys, of mode 600")
    parser.add_argument(
        "--did",
        dest="dids",
        action="append",
        default=[],
        metavar="DID",
        help="a did:peer:4 in its long form, for messages that have the short one; may be repeated",
    )
    parser.add_argument(
        "--document",
        dest="documents",
        action="append",
        default=[],
        metavar="FILE",
        help="a DID document, for a DID that does not carry its own; may be repeated",
    )
