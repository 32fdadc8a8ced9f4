package complete

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/cli/frame"
)

var command = frame.Command{
	Name: "completion", Usage: "[options] bash|zsh|fish",
	Doc: "Prints a script that lets a shell complete programs, options, minions, functions and arguments at the Tab key. " +
		"bash: source <(brine completion bash). zsh: brine completion zsh > a file named _brine in a directory of $fpath. " +
		"fish: brine completion fish > ~/.config/fish/completions/salt.fish. The program brine must be in $PATH.",
}

// Applet returns the program that prints the scripts. list returns all
// programs.
func Applet(list func() []frame.Applet) frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "print the completion script of a shell", Run: func(_ context.Context, env *frame.Env, args []string) int {
		inv, code, ok := command.Parse(env, &struct{}{}, args)
		if !ok {
			return code
		}
		if len(inv.Args) != 1 {
			return command.Fail(env, "name one shell: bash, zsh or fish")
		}
		script, ok := map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[inv.Args[0]]
		if !ok {
			return command.Fail(env, fmt.Sprintf("there is no script for %q: choose bash, zsh or fish", inv.Args[0]))
		}
		names := []string{"brine"}
		for _, a := range list() {
			if strings.HasPrefix(a.Name, "salt") {
				names = append(names, a.Name)
			}
		}
		fmt.Fprint(env.Stdout, strings.ReplaceAll(script, "PROGRAMS", strings.Join(names, " ")))
		return frame.ExitOK
	}}
}

const bash = `# Completion of Brine's programs for bash. Made by: brine completion bash
_brine_complete() {
    local IFS=$'\n' line
    COMPREPLY=()
    for line in $(command brine __complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null); do
        case $line in
            :files) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$2")) ;;
            :dirs) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$2")) ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done
    case ${#COMPREPLY[@]}:${COMPREPLY[0]-} in
        1:*[=:,/]) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _brine_complete PROGRAMS
`

const zsh = `#compdef PROGRAMS
# Completion of Brine's programs for zsh. Made by: brine completion zsh
_brine_complete() {
    local line value
    local -a plain plain_shown glued glued_shown
    for line in "${(@f)$(command brine __complete zsh "${(@Q)words[1,CURRENT]}" 2>/dev/null)}"; do
        value=${line%%$'\t'*}
        case $value in
            '') ;;
            :files) _files ;;
            :dirs) _files -/ ;;
            *[=:,/]) glued+=("$value"); glued_shown+=("${line//$'\t'/  -- }") ;;
            *) plain+=("$value"); plain_shown+=("${line//$'\t'/  -- }") ;;
        esac
    done
    (( $#glued )) && compadd -l -S '' -d glued_shown -a glued
    (( $#plain )) && compadd -l -d plain_shown -a plain
    return 0
}
if [[ ${funcstack[1]-} == _brine ]]; then
    _brine_complete "$@"
else
    compdef _brine_complete PROGRAMS
fi
`

const fish = `# Completion of Brine's programs for fish. Made by: brine completion fish
function __brine_complete
    set -l words (commandline -opc) (commandline -ct | string unescape)
    test (count $words) -eq (count (commandline -opc)); and set -a words ''
    for line in (command brine __complete fish $words 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :dirs
                __fish_complete_directories (commandline -ct) ''
            case '*'
                printf '%s\n' $line
        end
    end
end
for program in PROGRAMS
    complete -c $program -f -a '(__brine_complete)'
end
`
