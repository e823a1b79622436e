package scheduler

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestCoreScripts runs the stories in testdata. Each directive is one turn, as the engine takes it: something happens, and
// then the core is asked for its plan, which is printed. "-" is a turn without anything to do.
//
// What happens is told by one command, or by several, one a line, below the directive "turn"; a line "then" ends one turn and
// begins the next:
//
//	worker NAME [KIND=SLOTS...] [tenant=T]   a worker connects, or says something new of itself
//	machine NAME [KIND=SLOTS...] [cpu=N] [memory=N] [gpus=N] [zone=Z] [label=KEY:VALUE] [tenant=T]   the same, with what it has
//	holds NAME [TASK...]                     it reconnects and names what it holds
//	drain NAME | resume NAME | leave NAME    it takes no more work, takes work again, says goodbye
//	lose NAME... [incident]                  workers were silent for their lease
//	submit TASK... [FACTS]                   tasks come in through this instance
//	ready TASK... [FACTS]                    tasks are known to be ready
//	due TASK... [FACTS]                      the time of scheduled tasks has come, known ones or new
//	woken TASK...                            the store has made scheduled tasks ready
//	elsewhere TASK... [FACTS]                tasks are ready in the store; the core does not know of them
//	won TASK... | lost TASK...               the store answers claims ("all" for all of them)
//	executed TASK...                         it has executed claims, the answers are still to come
//	stored TASK... | refused TASK...         it answers the inserts of eager starts
//	ended TASK...                            it answers endings
//	accept TASK... | undelivered TASK...     workers have started attempts; assignments could not be sent
//	report TASK... OUTCOME [FACTS]           workers say what became of attempts
//	bears LIMIT RATE for=DURATION            workers run all there is, and call a service that bears so many a second
//	cancel TASK...                           somebody cancels tasks
//	takeover TASK... by=WORKER [FACTS]       running attempts of another session are this one's now
//	missing TASK...                          running rows are not this session's any more
//	session NUMBER                           the instance has a new session
//	lanes SHARD...                           the instance serves these shards now
//	discover                                 the store is asked for groups
//	refill [per_shard=N]                     it is asked for the rows that the core wants: "read", then "shown"
//	tick DURATION                            time passes
//	room [urgent=N] [others=N] [hold]        how much may be planned from now on
//	lend KIND=SLOTS... [limit=N]             another instance asks for rows that it could start
//	ask                                      prints for which kinds there is room here, and which wait
//	explain TASK...                          prints why tasks do not run
//	state                                    prints what the core knows
//
// TASKs may be given as a range, such as r01..r40. FACTS of a task: tenant, kind, tier, due (from the start of the story), shard, attempts (max_attempts), timeout,
// tolerance, suspect, exclusive, limits, cpu, memory, gpus, gpu_milli, slots, select (KEY:VALUE); of a report: reason, retry_after, delay, limit, non_retryable.
func TestCoreScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" {
			return // a failed history that rapid has kept
		}
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out = nil
			lines := []string{d.Cmd + " " + strings.Join(argTexts(d.CmdArgs), " ")}
			if d.Cmd == "turn" {
				lines = strings.Split(strings.TrimSpace(d.Input), "\n")
			}
			for _, line := range lines {
				if err := s.run(strings.Fields(line)); err != nil {
					d.Fatalf(t, "%v", err)
				}
			}
			s.printPlan(s.plan(s.room))
			s.check(t)
			return s.text()
		})
	})
}

func argTexts(args []datadriven.CmdArg) []string {
	var texts []string
	for _, a := range args {
		texts = append(texts, a.String())
	}
	return texts
}

// script is a world whose tasks and workers have names.
type script struct {
	*world
	room    Room
	tasks   map[string]ID
	workers map[string]WorkerID
	answer  Refilled // of the last read
	out     []string
}

func newScript() *script {
	half := func() float64 { return 0.5 }
	return &script{
		world: newWorld(DefaultTiming(), half),
		room:  Room{Urgent: BatchRowsUrgentMax, Others: BatchRowsMax},
		tasks: map[string]ID{}, workers: map[string]WorkerID{},
	}
}

// words are the arguments of a command: names, and facts of the form key=value or key.
type words struct {
	names []string
	facts map[string]string
}

func (s *script) words(args []string) words {
	w := words{facts: map[string]string{}}
	for _, arg := range args {
		key, value, isFact := strings.Cut(arg, "=")
		switch {
		case isFact:
			w.facts[key] = value
		case slices.Contains([]string{"suspect", "incident", "hold", "non_retryable", "exclusive", "paused", "deleted"}, arg):
			w.facts[arg] = "true"
		default:
			w.names = append(w.names, namesOf(arg)...)
		}
	}
	return w
}

// namesOf expands a range of names: a letter and two digits, twice.
func namesOf(arg string) []string {
	first, last, isRange := strings.Cut(arg, "..")
	if !isRange {
		return []string{arg}
	}
	from, err1 := strconv.Atoi(first[1:])
	to, err2 := strconv.Atoi(last[1:])
	if err1 != nil || err2 != nil {
		panic(fmt.Sprintf("bad range %q", arg))
	}
	var names []string
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s%02d", first[:1], n))
	}
	return names
}

func (w words) duration(key string, unset time.Duration) time.Duration {
	text, here := w.facts[key]
	if !here {
		return unset
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (w words) number(key string, unset int) int {
	n, err := strconv.Atoi(w.facts[key])
	if err != nil {
		return unset
	}
	return n
}

func (w words) text(key, unset string) string {
	if text, here := w.facts[key]; here {
		return text
	}
	return unset
}

func (s *script) run(fields []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", strings.Join(fields, " "), r)
		}
	}()
	cmd, w := fields[0], s.words(fields[1:])
	for _, group := range []func(string, words) bool{s.runWorkers, s.runTasks, s.runStore, s.runSettings, s.runInstance} {
		if group(cmd, w) {
			return nil
		}
	}
	return fmt.Errorf("unknown command %q", cmd)
}
