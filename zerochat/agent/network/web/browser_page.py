"""The page that a browser gets for an invitation: what it is, and what to do with it.

DIDComm v2.1, "Standard Message Encoding": the URL of an invitation returns human readable instructions. The page is
constant: it contains nothing of the request or of the invitation, loads nothing and runs nothing.
"""

from typing import Final

PRIVATE: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
HEADERS: Final = {
    **PRIVATE,
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
PAGE: Final = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>An invitation</title>
<style>body { font: 1.1em/1.5 system-ui, sans-serif; max-width: 36em; margin: 3em auto; padding: 0 1em }</style>
<h1>An invitation</h1>
<p>This link is an invitation to a group, an agent or a mediator. It cannot be used in a browser.
<ol>
<li>Install zerochat, or another program that speaks DIDComm.
<li>Copy the whole address of this page, with all that follows <code>#</code> or <code>?</code>.
<li>In the chat, press F8 and paste it. On the command line: <code>zerochat join LINK</code> for a group,
<code>zerochat connect LINK</code> for an agent, <code>zerochat route add LINK</code> for a mediator.
</ol>
<p>Give the link to the invited person only. It ends with its time, or with its use.
</html>
"""
