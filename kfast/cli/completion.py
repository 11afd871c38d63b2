"""``kfast completion``: scripts with which bash, zsh and fish complete words of ``kfast``.

The scripts call ``kfast _complete -- WORD...`` (see ``complete``), so that they need not be made
anew for another version.
"""

from __future__ import annotations

from typing import Final

import click

from kfast.cli.options import Command, Common, Words
from kfast.cli.rows import write_text

BASH: Final = r"""# Completion of kfast for bash. In ~/.bashrc:  eval "$(kfast completion bash)"
_kfast() {
    local cur="${COMP_WORDS[COMP_CWORD]}" line="${COMP_LINE:0:COMP_POINT}" each prefix
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    # bash splits words at = and :, and replaces the last part only.
    [[ "$cur" == "=" || "$cur" == ":" ]] && cur=""
    prefix="${words[${#words[@]}-1]}"
    prefix="${prefix%"$cur"}"
    COMPREPLY=()
    while IFS= read -r each; do
        COMPREPLY+=("${each#"$prefix"}")
    done < <("${words[0]}" _complete -- "${words[@]:1}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _kfast kfast
"""

ZSH: Final = r"""#compdef kfast
# Completion of kfast for zsh. In ~/.zshrc, behind compinit:  eval "$(kfast completion zsh)"
_kfast() {
    local -a found open
    found=("${(@f)$("${words[1]}" _complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ! $#found )); then
        _files
        return
    fi
    open=("${(@M)found:#*=}")
    found=("${(@)found:#*=}")
    (( $#open )) && compadd -S '' -- "${(@)open}"
    (( $#found )) && compadd -- "${(@)found}"
}
# As a file of $fpath this is the body of the function, and what it is called for.
if [[ "$funcstack[1]" == _kfast ]]; then
    _kfast "$@"
else
    compdef _kfast kfast
fi
"""

FISH: Final = r"""# Completion of kfast for fish. In config.fish:  kfast completion fish | source
function __kfast_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (command $words[1] _complete -- $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c kfast -f -a '(__kfast_complete)'
"""

SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def _completion(_common: Common, shell: str) -> None:
    write_text(SCRIPTS[shell])


command = Command(
    "completion",
    callback=click.pass_obj(_completion),
    help="Print the script with which a shell completes commands, options, their values, settings, "
    "profiles, topics and groups. Topics and groups are those of the cluster, kept for a minute.",
    params=[click.Argument(["shell"], type=Words([*SCRIPTS]), metavar="bash|zsh|fish")],
    examples=(
        "kfast completion zsh > ~/.zfunc/_kfast",
        'eval "$(kfast completion bash)"',
        "kfast completion fish | source",
    ),
)
