"""The grammar of the verb that plays simulated histories."""

import os

from zerochat.cli.grammar import Parser, Verbs, add_verb, chance, count, positive


def add_sim(verbs: "Verbs[Parser]") -> None:
    """Declare the verb sim."""
    sim = add_verb(
        verbs,
        "sim",
        "play simulated groups in which everything goes wrong, and look whether a promise breaks",
        "Play short episodes in the life of a group: the real core, in virtual time, over lines that lose, repeat,\n"
        "cut, hold up and garble, on machines that crash between any two deeds, with disks that fill up and clocks\n"
        "that are set. Afterwards everybody must have everything, once and in one order. One seed is one history, to\n"
        "the last byte. Of a seed that breaks a promise it is said what it takes. The exit code is 7 if there is one.\n"
        "In a terminal it is shown how far it is; Ctrl+C ends it, and what was played so far is said.",
        """
zerochat sim
zerochat sim --seeds 100000 --first 5000
zerochat sim --seed 7 --trace
zerochat sim --histories --seeds 200
zerochat sim --byzantine --seeds 200
zerochat sim --accountable --seeds 50
""",
    )
    sim.add_argument("--seeds", type=positive, metavar="N", help="how many to play (default: 1000)")
    sim.add_argument("--first", type=count, metavar="SEED", help="the seed to begin with (default: 0)")
    sim.add_argument("--seed", type=count, metavar="SEED", help="play this one only")
    sim.add_argument("--trace", action="store_true", help="tell what happens, in sentences")
    kinds = sim.add_mutually_exclusive_group()
    kinds.add_argument(
        "--histories",
        dest="kind",
        action="store_const",
        const="histories",
        default="episodes",
        help="whole histories, from a group's founding on, instead of short episodes",
    )
    kinds.add_argument(
        "--byzantine", dest="kind", action="store_const", const="byzantine", help="with members who break the rules"
    )
    kinds.add_argument(
        "--accountable",
        dest="kind",
        action="store_const",
        const="accountable",
        help="groups that keep a log, with witnesses who lie",
    )
    sim.add_argument(
        "--loss",
        type=chance,
        metavar="P",
        help="how many of the frames get lost, 0 to 1 (usually a tenth or a fifth): in episodes until calm begins,"
        " where a tenth at the most gets lost; in the others all the time, and so 0.5 at the most",
    )
    sim.add_argument("--twice", action="store_true", help="play each seed twice, and compare")
    jobs = os.cpu_count() or 1
    sim.add_argument("--jobs", type=positive, default=jobs, metavar="N", help=f"processes (default: {jobs})")
