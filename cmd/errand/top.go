package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Bounds of errand top.
const (
	topIntervalMin   = 500 * time.Millisecond
	topIntervalMax   = time.Hour
	topTenantsMax    = 1000            // as many as an overview holds
	topWorkersMax    = 1000            // that are listed
	topWorkersPage   = 500             // that are asked for at once
	topAnswerMax     = 5 * time.Second // the longest that an answer is waited for
	topFramesASecond = 20              // drawn at most: a line over ssh is slow
)

// topCmd shows who waits and who runs in a region.
type topCmd struct {
	Interval time.Duration `help:"How often to look, at least 0.5s." default:"2s" env:"-"`
	Once     bool          `help:"Print one picture and end; so it is without a terminal." env:"-"`
	Tenants  int           `help:"Most tenants that are listed, at most 1000." default:"100" placeholder:"N" env:"-"`
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*topCmd) Help() string { return "Keys:\n\n    " + strings.Join(topHelp, "\n    ") }

// Validate checks the bounds.
func (c *topCmd) Validate() error {
	switch {
	case c.Interval < topIntervalMin || c.Interval > topIntervalMax:
		return fmt.Errorf("--interval: %v is not between %v and %v", c.Interval, topIntervalMin, topIntervalMax)
	case c.Tenants < 1 || c.Tenants > topTenantsMax:
		return fmt.Errorf("--tenants: %d is not between 1 and %d", c.Tenants, topTenantsMax)
	}
	return nil
}

// Run looks once, so that what is wrong from the start is an error like any other; then it shows that, or goes on looking.
func (c *topCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx) // ends what is still asked when the screen is left
	defer stop()
	s := &topSource{admin: admin, tenants: int32(c.Tenants)}
	first := s.ask(ctx, false)
	switch {
	case first.err != nil:
		return first.err
	case c.Output == "json":
		return printJSON(os.Stdout, overviewViewOf(first.overview))
	case c.Once || !liveTerminal():
		return printPicture(first.overview)
	}
	m := newTopModel(first, c.Interval, func(workers bool) tea.Cmd {
		return func() tea.Msg { return s.ask(ctx, workers) }
	})
	p := tea.NewProgram(m, tea.WithInput(os.Stdin), tea.WithOutput(os.Stdout), tea.WithFPS(topFramesASecond), tea.WithoutSignalHandler())
	defer context.AfterFunc(ctx, p.Quit)() // a signal ends it as q does
	_, err = p.Run()
	return err
}

// liveTerminal tells whether there is somebody at a terminal that can draw.
func liveTerminal() bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb" && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// printPicture prints all of an overview. On a terminal lines are cut at its width, elsewhere they are as long as they have to be.
func printPicture(o *errandv1.Overview) error {
	width := 0
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		width, _, _ = term.GetSize(fd) // of unknown width: nothing is cut
	}
	_, err := os.Stdout.WriteString(pictureOf(o, width, time.Local))
	return err
}

// topSource asks a scheduler.
type topSource struct {
	admin   errandv1connect.AdminServiceClient
	tenants int32
}

// topAnswer is what it said.
type topAnswer struct {
	at       time.Time // here, when it came
	overview *errandv1.Overview
	workers  *topWorkers // nil when it was not asked for them
	err      error
}

// topWorkers are the workers of the instance that answered.
type topWorkers struct {
	list []*errandv1.Worker
	more bool // than are listed
}

// ask gets an overview, and the workers when they are to be shown.
func (s *topSource) ask(ctx context.Context, workers bool) topAnswer {
	ctx, cancel := context.WithTimeout(ctx, topAnswerMax)
	defer cancel()
	var a topAnswer
	resp, err := s.admin.GetOverview(ctx, &errandv1.GetOverviewRequest{Tenants: s.tenants})
	if a.overview = resp.GetOverview(); err == nil && workers {
		a.workers, err = s.workers(ctx)
	}
	if err != nil {
		a.err = rpcError(err)
	}
	a.at = time.Now()
	return a
}

func (s *topSource) workers(ctx context.Context) (*topWorkers, error) {
	found := &topWorkers{}
	for req := (&errandv1.ListWorkersRequest{PageSize: topWorkersPage}); ; {
		resp, err := s.admin.ListWorkers(ctx, req)
		if err != nil {
			return nil, err
		}
		found.list = append(found.list, resp.GetWorkers()...)
		req.PageToken = resp.GetNextPageToken()
		if found.more = req.PageToken != ""; !found.more || len(found.list) >= topWorkersMax {
			return found, nil
		}
	}
}
