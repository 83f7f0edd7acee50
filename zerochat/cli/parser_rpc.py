"""The grammar of the verb rpc."""

from zerochat.cli.grammar import Parser, Verbs, add_verb


def add_rpc(verbs: "Verbs[Parser]") -> None:
    """Declare the verb rpc."""
    rpc = add_verb(
        verbs,
        "rpc",
        "speak the control protocol on standard input and output",
        "Speak the agent's control protocol, for programs that want all of it: JSON-RPC 2.0, one object a line, as on\n"
        "the control socket. Requests are read from standard input; answers and notifications go to standard output.\n"
        "At the end of the input it waits for the answers that are still due, and ends. zerochat/agent/api/PROTOCOL.md\n"
        "says what there is to ask.",
        """
echo '{"jsonrpc":"2.0","id":1,"method":"groups"}' | zerochat rpc --stdio
zerochat --profile ci rpc --stdio < requests.jsonl > answers.jsonl
zerochat rpc --schema
""",
    )
    what = rpc.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--stdio", dest="rpc_way", action="store_const", const="stdio", help="read requests, and write what comes"
    )
    what.add_argument(
        "--schema", dest="rpc_way", action="store_const", const="schema", help="print the protocol as JSON Schema"
    )
