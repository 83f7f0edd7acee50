"""Completion scripts for bash, zsh and fish, generated from the command tree.

A script contains verbs and options; for current names, such as groups, it calls `PROGRAM __complete KIND`.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from zerochat.cli.command_tree import Value, Verb

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str, tree: Verb, program: str) -> str:
    """What completes this program in this shell (bash, zsh, fish)."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](tree)
    return made.replace("{{me}}", program.replace("-", "_")).replace("{{program}}", program)


# --- bash and zsh: the grammar as a function ------------------------------------------------------------------------


_GRAMMAR: Final = """\
# What may stand behind these verbs: options, those of them that take a value, verbs, and what each place takes.
_{{me}}_grammar() {
    options='' valued='' verbs='' places=()
    case "$1" in
%s
    esac
}

# What the value of an option is.
_{{me}}_value() {
    case "$1 $2" in
%s
    esac
}
"""
_WALK: Final = """\
    _{{me}}_grammar ''
    for word in "${before[@]}"; do
        if [[ -n $pending && $word == '=' ]]; then
            continue
        elif [[ -n $pending ]]; then
            [[ $pending == --profile ]] && ask=({{program}} --profile "$word" __complete)
            pending=''
        elif [[ -z $rest && $word == -- ]]; then
            rest=1
        elif [[ -z $rest && $word == --profile=* ]]; then
            ask=({{program}} --profile "${word#--profile=}" __complete)
        elif [[ -z $rest && $word == -?* ]]; then
            [[ " $valued " == *" $word "* ]] && pending=$word
        elif [[ -z $rest && " $verbs " == *" $word "* ]]; then
            verb="$verb $word" place=0
            _{{me}}_grammar "$verb"
        else
            place=$((place + 1)) group=$word
        fi
    done
"""
_BASH: Final = """\
# bash completion for {{program}}, made by `{{program}} completion bash`

%s
_{{me}}() {
    local word cur=${COMP_WORDS[COMP_CWORD]} verb='' pending='' rest='' kind='' group='' name plain quote
    local options valued verbs place=0
    local -a places names ask=({{program}} __complete) before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    COMPREPLY=()
%s
    if [[ -n $pending ]]; then
        [[ $cur == '=' ]] && cur=''
        kind=$(_{{me}}_value "$verb" "$pending")
    elif [[ -z $rest && $cur == -* ]]; then
        kind="words $options"
    else
        ((${#places[@]} && place >= ${#places[@]})) && [[ ${places[-1]} == *'*' ]] && place=$((${#places[@]} - 1))
        kind=${places[place]:-}
        kind=${kind%%'*'}
        [[ -n $verbs ]] && kind="words $verbs"
    fi
    case "$kind" in
        words*)
            COMPREPLY=($(compgen -W "${kind#words}" -- "$cur"))
            [[ ${COMPREPLY[0]:-} == *= ]] && compopt -o nospace 2>/dev/null
            ;;
        files)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            ;;
        groups | members | connections | profiles | sent-files | bots)
            quote=${group:0:1}
            [[ $quote == [\\"\\'] ]] || quote=''
            group=${group#"$quote"} group=${group%%"$quote"}
            [[ -z $quote ]] && group=${group//\\\\/}
            quote=${cur:0:1}
            [[ $quote == [\\"\\'] ]] || quote=''
            plain=${cur#"$quote"}
            [[ -z $quote ]] && plain=${plain//\\\\/}
            mapfile -t names < <("${ask[@]}" "$kind" "$group" 2>/dev/null </dev/null)
            for name in "${names[@]}"; do
                [[ $name == "$plain"* && $name != *[=:]* && $name != *"${quote:-/}"* ]] || continue
                if [[ $quote == "'" ]]; then
                    COMPREPLY+=("$name")
                elif [[ -n $quote ]]; then
                    [[ $name == *[\\$\\`\\\\!]* ]] || COMPREPLY+=("$name") # there these mean something to the shell
                else
                    COMPREPLY+=("$(printf %%q "$name")")
                fi
            done
            ;;
    esac
}

complete -F _{{me}} {{program}}
"""
_ZSH: Final = """\
#compdef {{program}}
# zsh completion for {{program}}, made by `{{program}} completion zsh`

%s
# What verbs and options mean.
_{{me}}_meaning() {
    meanings=()
    case "$1" in
%s
    esac
}

_{{me}}() {
    local word cur=${words[CURRENT]} verb='' pending='' rest='' kind='' group='' options valued verbs
    local -i place=0
    local -a places names meanings before ask
    ask=({{program}} __complete) before=("${(@Q)words[2,CURRENT-1]}")
%s
    if [[ -n $pending ]]; then
        kind=$(_{{me}}_value "$verb" "$pending")
    elif [[ -z $rest && $cur == --*=* && " $valued " == *" ${cur%%%%=*} "* ]]; then
        kind=$(_{{me}}_value "$verb" "${cur%%%%=*}")
        compset -P '*='
    elif [[ -z $rest && $cur == -* ]]; then
        kind="words $options"
    else
        (( $#places && place >= $#places )) && [[ ${places[-1]} == *'*' ]] && place=$(( $#places - 1 ))
        kind=${places[place+1]:-}
        kind=${kind%%'*'}
        [[ -n $verbs ]] && kind="words $verbs"
    fi
    case "$kind" in
        words*)
            _{{me}}_meaning "$verb"
            for word in ${=kind#words}; do
                names+=(${(M)meanings:#$word:*})
            done
            if (( $#names )); then
                _describe {{program}} names
            elif [[ $kind == *= ]]; then
                compadd -S '' -- ${=kind#words}
            else
                compadd -- ${=kind#words}
            fi
            ;;
        files) _files ;;
        groups | members | connections | profiles | sent-files | bots)
            names=("${(@f)$("${ask[@]}" "$kind" "$group" 2>/dev/null </dev/null)}")
            compadd -- "${(@)names:#}"
            ;;
    esac
}

if [[ $funcstack[1] == _{{program}} ]]; then _{{me}} "$@"; else compdef _{{me}} {{program}}; fi
"""


def _functions(tree: Verb) -> str:
    """The two functions that bash and zsh have in common."""
    lines, values = [], []
    for verb in tree.all():
        name = "".join(f" {word}" for word in verb.path)
        valued = [flag for option in verb.options if option.value for flag in option.flags]
        body = [
            f"options={shlex.quote(' '.join(flag for option in verb.options for flag in option.flags))}",
            f"valued={shlex.quote(' '.join(valued))}",
            f"verbs={shlex.quote(' '.join(one.path[-1] for one in verb.verbs))}",
            f"places=({' '.join(shlex.quote(_kind(one.value)) for one in verb.positionals)})",
        ]
        lines.append(f"        {shlex.quote(name)}) {' '.join(body)} ;;")
        for option in verb.options:
            if option.value is not None and (kind := _kind(option.value)):
                which = " | ".join(shlex.quote(f"{name} {flag}") for flag in option.flags)
                values.append(f"        {which}) echo {shlex.quote(kind)} ;;")
    return _GRAMMAR % ("\n".join(lines), "\n".join(values))


def _kind(value: Value) -> str:
    """What completes it: `words A B`, `groups`, `profiles`, `files`, or nothing; with a star if it may come again."""
    kind = f"words {' '.join(value.choices)}" if value.kind == "words" else value.kind
    return f"{kind}*" if value.many and kind else kind


def _bash(tree: Verb) -> str:
    return _BASH % (_functions(tree), _WALK.rstrip("\n"))


def _zsh(tree: Verb) -> str:
    meanings = []
    for verb in tree.all():
        pairs = [(flag, option.help) for option in verb.options for flag in option.flags]
        pairs += [(one.path[-1], one.summary) for one in verb.verbs]
        words = " ".join(shlex.quote(f"{word.replace(':', chr(92) + ':')}:{text}") for word, text in pairs)
        name = "".join(f" {word}" for word in verb.path)
        meanings.append(f"        {shlex.quote(name)}) meanings=({words}) ;;")
    return _ZSH % (_functions(tree), "\n".join(meanings), _WALK.rstrip("\n"))


# --- fish: one line for each word -----------------------------------------------------------------------------------


_FISH: Final = """\
# fish completion for {{program}}, made by `{{program}} completion fish`

# The verbs that stand on the command line, and how many other words behind them.
function __{{me}}_walk
    set -l verb ''
    set -l place 0
    set -l group ''
    set -l pending ''
    for word in (commandline -opc)[2..-1]
        if test -n "$pending"
            set pending ''
        else if string match -q -- '-?*' $word
            contains -- "$verb $word" $__{{me}}_valued; and set pending $word
        else if contains -- "$verb $word" $__{{me}}_verbs
            set verb "$verb $word"
            set place 0
        else
            set place (math $place + 1)
            set group $word
        end
    end
    echo $verb
    echo $place
    echo $group
end

function __{{me}}_at
    set -l now (__{{me}}_walk)
    test "$now[1]" = "$argv[1]"; or return 1
    test (count $argv) -eq 1; or contains -- $now[2] $argv[2..-1]; or begin
        contains -- more $argv; and test $now[2] -ge $argv[2]
    end
end

function __{{me}}_names
    set -l words (commandline -opc)
    set -l ask {{program}}
    set -l group (__{{me}}_walk)[3]
    for place in (seq 2 (count $words))
        if test "$words[$place]" = --profile; and test $place -lt (count $words)
            set ask {{program}} --profile $words[(math $place + 1)]
        else if string match -q -- '--profile=*' $words[$place]
            set ask {{program}} $words[$place]
        end
    end
    $ask __complete $argv[1] "$group" 2>/dev/null </dev/null
end

"""


def _fish(tree: Verb) -> str:
    verbs = [_path(verb) for verb in tree.all() if verb.path]
    valued = [f"{_path(v)} {flag}" for v in tree.all() for one in v.options if one.value for flag in one.flags]
    lines = [
        f"set -g __{{{{me}}}}_verbs {' '.join(map(_fished, verbs))}",
        f"set -g __{{{{me}}}}_valued {' '.join(map(_fished, valued))}",
        "complete -c {{program}} -e",
        "complete -c {{program}} -f",
    ]
    for verb in tree.all():
        lines += _fish_lines(verb)
    return _FISH + "\n".join(lines) + "\n"


def _fish_lines(verb: Verb) -> Iterator[str]:
    at = f"__{{{{me}}}}_at {_fished(_path(verb))}"
    for one in verb.verbs:
        yield f"complete -c {{{{program}}}} -n {_fished(f'{at} 0')} -a {one.path[-1]} -d {_fished(one.summary)}"
    for option in verb.options:
        flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
        needs = _fish_value(option.value) if option.value is not None else []
        yield " ".join(["complete -c {{program}} -n", _fished(at), *flags, *needs, "-d", _fished(option.help)])
    for number, place in enumerate(() if verb.verbs else verb.positionals):
        if given := _fish_value(place.value)[1:]:
            which = f"{at} {number}{' more' if place.value.many else ''}"
            forced = ["-F"] if place.value.kind == "files" else given
            yield " ".join(["complete -c {{program}} -n", _fished(which), *forced, "-d", _fished(place.value.metavar)])


def _fish_value(value: Value) -> list[str]:
    """How fish says that an option takes a value, and which."""
    match value.kind:
        case "files":
            return ["-r", "-F"]
        case "words":
            return ["-x", "-a", _fished(" ".join(value.choices))]
        case "":
            return ["-x"]
        case kind:
            return ["-x", "-a", _fished(f"(__{{{{me}}}}_names {kind})")]


def _path(verb: Verb) -> str:
    return "".join(f" {word}" for word in verb.path)


def _fished(text: str) -> str:
    """A word as fish reads it: in single quotes only they themselves and backslashes are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
