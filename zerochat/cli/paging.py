"""The options of verbs that list members: how many, or all."""

from zerochat.cli.grammar import Options, Parser
from zerochat.cli.value_types import positive
from zerochat.limits import MEMBER_PAGE_MAX


def page_options(parser: Parser, things: str) -> None:
    """Declare `--limit` and `--all`. `things`: what is listed."""
    much = parser.add_mutually_exclusive_group()
    much.add_argument(
        "--limit", type=positive, metavar="N", help=f"list at most N {things} (default: {MEMBER_PAGE_MAX})"
    )
    much.add_argument("--all", action="store_true", help=f"list all {things}")


def page_limit(options: Options) -> int | None:
    """How many are listed at most; None: all."""
    return None if options.all else options.limit or MEMBER_PAGE_MAX
