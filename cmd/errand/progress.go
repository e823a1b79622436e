package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// progress is a line on a terminal that is written over and over. Without a terminal it is nil, and writes nothing.
type progress struct {
	w     io.Writer
	width func() int
	shown bool
}

// newProgress returns a line on standard error, nil when that is not a terminal.
func newProgress() *progress {
	fd := int(os.Stderr.Fd())
	if !term.IsTerminal(fd) {
		return nil
	}
	return &progress{w: os.Stderr, width: func() int {
		const usual = 80
		width, _, err := term.GetSize(fd)
		if err != nil || width < 1 {
			return usual
		}
		return width
	}}
}

// eraseLine goes to the beginning of the line and empties it.
const eraseLine = "\r\x1b[K"

// show replaces the line; what does not fit is cut.
func (p *progress) show(text string) {
	if p == nil {
		return
	}
	runes := []rune(text)
	if most := p.width() - 1; len(runes) > most {
		runes = runes[:max(most, 0)]
	}
	p.shown = true
	_, _ = fmt.Fprint(p.w, eraseLine+string(runes)) // a line that cannot be shown is no reason to stop
}

// clear takes the line away.
func (p *progress) clear() {
	if p == nil || !p.shown {
		return
	}
	p.shown = false
	_, _ = fmt.Fprint(p.w, eraseLine)
}
