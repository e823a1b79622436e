package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// suggestCommand is how the shells' scripts ask what could follow: errand __suggest WORD... The last word is the one that is being
// written. Every line of the answer is a word, a tab and what it is.
const suggestCommand = "__suggest"

// completionCmd prints a shell's script.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// Help follows the arguments and flags.
func (*completionCmd) Help() string {
	return `For this session, or in the shell's start file:

    source <(errand completion bash)
    source <(errand completion zsh)
    errand completion fish | source`
}

// Run prints it.
func (c *completionCmd) Run() error {
	_, err := io.WriteString(os.Stdout, map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell])
	return err
}

// The scripts leave file names to the shell when errand suggests nothing. Bash takes --flag=word for three words and wants only
// the last one back.
const (
	bashScript = `_errand() {
    local IFS=$'\n'
    COMPREPLY=($("$1" ` + suggestCommand + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
    if [[ $COMP_WORDBREAKS == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#--*=}")
    fi
}
complete -o bashdefault -o default -F _errand errand
`
	zshScript = `#compdef errand
_errand() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" ` + suggestCommand + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#found )); then
        _describe -V errand found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _errand ]]; then
    _errand "$@"
else
    compdef _errand errand
fi
`
	fishScript = `function __errand_suggest
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] ` + suggestCommand + ` $words[2..] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c errand -f -k -a '(__errand_suggest)'
`
)

func printSuggestions(w io.Writer, app *kong.Application, words []string) {
	for _, s := range suggest(app, words) {
		fmt.Fprintf(w, "%s\t%s\n", s.word, s.help)
	}
}

// suggestion is a word that could follow.
type suggestion struct{ word, help string }

// position is where in a command line the next word stands.
type position struct {
	command   *kong.Command
	flag      *kong.Flag // whose value it is; nil for none
	arguments int        // that stand before it
	noFlags   bool       // after a --
}

// suggest tells what the last word could become.
func suggest(app *kong.Application, words []string) []suggestion {
	words = joinEquals(words)
	if len(words) == 0 {
		words = []string{""}
	}
	at, word := position{command: app.Node}, words[len(words)-1]
	for _, w := range words[:len(words)-1] {
		at.step(w)
	}
	name, _, valued := strings.Cut(word, "=")
	var found []suggestion
	switch {
	case at.flag != nil:
		found = values(at.flag.Value, "")
	case strings.HasPrefix(word, "-") && !at.noFlags && valued:
		if f := at.find(name); f != nil {
			found = values(f.Value, name+"=")
		}
	case strings.HasPrefix(word, "-") && !at.noFlags:
		found = at.flags()
	default:
		found = at.commands()
	}
	return slices.DeleteFunc(found, func(s suggestion) bool { return !strings.HasPrefix(s.word, word) })
}

// joinEquals undoes what bash does to --flag=word.
func joinEquals(words []string) []string {
	var joined []string
	for i := 0; i < len(words); i++ {
		if last := len(joined) - 1; words[i] == "=" && last >= 0 && strings.HasPrefix(joined[last], "--") {
			joined[last] += "="
			if i+1 < len(words) {
				i++
				joined[last] += words[i]
			}
			continue
		}
		joined = append(joined, words[i])
	}
	return joined
}

// step goes past a word.
func (p *position) step(word string) {
	switch {
	case p.flag != nil:
		p.flag = nil
	case word == "--":
		p.noFlags = true
	case strings.HasPrefix(word, "-") && !p.noFlags:
		if f := p.find(word); f != nil && !f.IsBool() && !f.IsCounter() {
			p.flag = f
		}
	default:
		for _, child := range p.command.Children {
			if child.Name == word && p.arguments == 0 {
				p.command = child
				return
			}
		}
		p.arguments++
	}
}

// all are the flags that may stand here, also those of a command that is meant when none is named.
func (p *position) all() []*kong.Flag {
	var flags []*kong.Flag
	command := cmp.Or(p.command.DefaultCmd, p.command)
	for _, group := range command.AllFlags(true) {
		flags = append(flags, group...)
	}
	return flags
}

func (p *position) find(name string) *kong.Flag {
	for _, f := range p.all() {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func (p *position) flags() []suggestion {
	var found []suggestion
	for _, f := range p.all() {
		found = append(found, suggestion{"--" + f.Name, f.Help})
	}
	return found
}

// commands are the commands that may follow, or the values of the next argument.
func (p *position) commands() []suggestion {
	var found []suggestion
	for _, child := range p.command.Children {
		if !child.Hidden && p.arguments == 0 {
			found = append(found, suggestion{child.Name, child.Help})
		}
	}
	if p.arguments < len(p.command.Positional) {
		found = append(found, values(p.command.Positional[p.arguments], "")...)
	}
	return found
}

// values are what may be chosen from.
func values(v *kong.Value, prefix string) []suggestion {
	if v.Enum == "" {
		return nil
	}
	var found []suggestion
	for _, word := range v.EnumSlice() {
		if word == "" { // the flag may be left out
			continue
		}
		found = append(found, suggestion{prefix + word, ""})
	}
	return found
}
