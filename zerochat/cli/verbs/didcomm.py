"""Verb didcomm: inspects, unpacks and packs single DIDComm messages, without a profile."""

from zerochat.cli.grammar import ENVELOPES, Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output

ENCRYPTIONS = ("A256CBC-HS512", "A256GCM", "XC20P")


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "didcomm",
        "inspect, unpack or pack a DIDComm message",
        "For debugging: inspect, unpack and pack single DIDComm messages of any agent, in files or pipes. Uses no\n"
        "profile and sends nothing.",
        """
zerochat didcomm inspect message.dcem
zerochat didcomm unpack message.dcem --secrets mine.jwks
zerochat didcomm pack note.dcpm --to DID --from DID --secrets mine.jwks
""",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    parser = add_verb(
        actions,
        "inspect",
        "show the layers of a message without unpacking it",
        "Show what an observer can see of a message: its layers, headers, recipients, key ids, algorithms and sizes,\n"
        "and whether zerochat accepts it. Needs no keys.",
        """
zerochat didcomm inspect message.dcem
curl -s https://example.com/message | zerochat didcomm inspect -
zerochat didcomm inspect message.dcsm --format jsonl | jq .signatures
""",
        run=_inspect,
    )
    _file_argument(parser)
    _add_unpack(actions)
    _add_pack(actions)


def _add_unpack(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "unpack",
        "decrypt and verify a message",
        "Unpack a message, and show its protection, sender and signer. Secret keys come from a JWK set in which the\n"
        "kid of each key is DID#KEY; the file must be readable by its owner only. Exits with 7 if the message cannot\n"
        "be opened or is inconsistent.",
        """
zerochat didcomm unpack message.dcsm
zerochat didcomm unpack message.dcem --secrets mine.jwks
zerochat didcomm unpack - --secrets mine.jwks --output note.dcpm <in.dcem
""",
        run=_unpack,
    )
    _file_argument(parser)
    _key_options(parser)
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="also unpack anon(auth(sign)), which the specification forbids but contains as an example",
    )
    _output_option(parser, "write the plaintext, byte for byte, to this file")


def _add_pack(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "pack",
        "sign or encrypt a message",
        "Sign or encrypt a plaintext. --from and --to: authcrypt; --to and --anon: anoncrypt; all three: authcrypt\n"
        "inside anoncrypt; --sign: sign, and with --to also anoncrypt. Missing `from` and `to` headers are filled in.",
        """
zerochat didcomm pack note.dcpm --to DID --from DID --secrets mine.jwks
zerochat didcomm pack note.dcpm --to DID --anon --enc XC20P >note.dcem
zerochat didcomm pack note.dcpm --sign --from DID --secrets my.jwks >a.dcsm
zerochat didcomm pack - --envelope didcomm/v1 --to DID --anon <note.dcpm
""",
        run=_pack,
    )
    _file_argument(parser)
    parser.add_argument("--to", metavar="DID", help="recipient, or one of its keys (DID#KEY)")
    parser.add_argument("--from", dest="sender", metavar="DID", help="sender; --secrets must contain one of its keys")
    parser.add_argument("--sign", action="store_true", help="sign, so that the recipient can prove the authorship")
    parser.add_argument("--anon", action="store_true", help="anoncrypt, so that the envelope does not name the sender")
    parser.add_argument(
        "--envelope",
        choices=ENVELOPES,
        default=ENVELOPES[0],
        help="DIDComm v2, or Aries RFC 0019 (default: %(default)s)",
    )
    parser.add_argument("--enc", choices=ENCRYPTIONS, help="content encryption of anoncrypt (default: A256CBC-HS512)")
    _key_options(parser)
    _output_option(parser, "write the message to this file (default: standard output)")


def _file_argument(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="the message, or - for standard input")


def _output_option(parser: Parser, help: str) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help=help)


def _key_options(parser: Parser) -> None:
    parser.add_argument("--secrets", metavar="FILE", help="JWK set with secret keys, mode 600")
    parser.add_argument(
        "--did",
        dest="dids",
        action="append",
        default=[],
        metavar="DID",
        help="long form of a did:peer:4 that occurs in its short form (repeatable)",
    )
    parser.add_argument(
        "--document",
        dest="documents",
        action="append",
        default=[],
        metavar="FILE",
        help="DID document of a DID that does not contain its own (repeatable)",
    )


def _inspect(options: "Options", out: "Output") -> int:
    from zerochat.cli.didcomm.inspect import inspect

    return inspect(options, out)


def _unpack(options: "Options", out: "Output") -> int:
    from zerochat.cli.didcomm.unpack import unpack

    return unpack(options, out)


def _pack(options: "Options", out: "Output") -> int:
    from zerochat.cli.didcomm.pack import pack

    return pack(options, out)
