package main

import (
	"context"
	"errors"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// topModel is what errand top shows, and what the keys have made of it. It has no clock and no connection of its own: times and
// answers are messages.
type topModel struct {
	ask      func(workers bool) tea.Cmd // asks once; its message is a topAnswer
	interval time.Duration
	now      time.Time // by the clock here
	zone     *time.Location

	overview *errandv1.Overview
	workers  *topWorkers // nil before they were asked for
	heard    time.Time   // when an answer came, or when it was begun to ask again after a pause
	lost     string      // why none came since; empty when one did
	asking   bool
	turn     int // of the wait for the next look; an older one's end means nothing
	paused   bool

	width, height int
	table         topTable
	orders        [topTables]topOrder
	offsets       [topTables]int // rows above the first that is shown
	help          bool
}

// topTurn says that it is time to look again.
type topTurn struct{ turn int }

// topClock is the time, every second: how long there was no answer grows without one.
type topClock time.Time

func newTopModel(first topAnswer, interval time.Duration, ask func(workers bool) tea.Cmd) topModel {
	const usualWidth, usualHeight = 80, 24 // until the terminal tells
	m := topModel{
		ask: ask, interval: interval, now: first.at, zone: time.Local, overview: first.overview, heard: first.at,
		width: usualWidth, height: usualHeight,
	}
	for table := range m.orders {
		m.orders[table].key = topOrders[table][0].key
	}
	return m
}

// Init begins to wait for the second look.
func (m topModel) Init() tea.Cmd { return tea.Batch(topTick(), m.wait()) }

func topTick() tea.Cmd {
	return tea.Tick(time.Second, func(at time.Time) tea.Msg { return topClock(at) })
}

// wait ends with this turn's word.
func (m topModel) wait() tea.Cmd {
	turn := topTurn{m.turn}
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return turn })
}

// look asks, once at a time.
func (m topModel) look() (topModel, tea.Cmd) {
	if m.asking {
		return m, nil
	}
	m.asking = true
	m.turn++
	return m, m.ask(m.table == workersTable)
}

// Update takes a message in.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var then tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		m, then = m.press(msg.String())
	case topClock:
		m.now, then = time.Time(msg), topTick()
	case topAnswer:
		m, then = m.answer(msg)
	case topTurn:
		if msg.turn == m.turn && !m.paused {
			m, then = m.look()
		}
	}
	m.offsets[m.table] = min(max(m.offsets[m.table], 0), max(m.rowCount()-m.page(), 0))
	return m, then
}

// answer takes in what was said. What is shown stays when nothing was, and while it is paused.
func (m topModel) answer(a topAnswer) (topModel, tea.Cmd) {
	m.asking, m.now = false, a.at
	switch {
	case m.paused:
		return m, nil
	case a.err != nil:
		if m.lost = escaped(problem(a.err, &surroundings{})); errors.Is(a.err, context.DeadlineExceeded) {
			m.lost = "it takes longer than " + short(topAnswerMax)
		}
		return m, m.wait()
	}
	m.overview, m.heard, m.lost = a.overview, a.at, ""
	if a.workers != nil {
		m.workers = a.workers
	} else if m.table == workersTable { // it was turned to while this was on its way
		return m.look()
	}
	return m, m.wait()
}

// topIntervals are what + and - choose from.
var topIntervals = []time.Duration{
	topIntervalMin, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// press does what a key says.
func (m topModel) press(key string) (topModel, tea.Cmd) {
	if m.help && key != "q" && key != "ctrl+c" && key != "ctrl+z" {
		m.help = false
		return m, nil
	}
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "?":
		m.help = true
	case "t":
		m.table = tenantsTable
	case "k":
		m.table = kindsTable
	case "w":
		if m.table = workersTable; !m.paused {
			return m.look()
		}
	case "space":
		if m.paused = !m.paused; !m.paused {
			m.heard = m.now // before, nobody asked
			return m.look()
		}
	case "+":
		if i := slices.IndexFunc(topIntervals, func(d time.Duration) bool { return d > m.interval }); i >= 0 {
			return m.every(topIntervals[i])
		}
	case "-":
		for _, shorter := range slices.Backward(topIntervals) {
			if shorter < m.interval {
				return m.every(shorter)
			}
		}
	default:
		m.scroll(key)
		m.order(key)
	}
	return m, nil
}

// every changes the interval, and begins to wait anew when it waits.
func (m topModel) every(d time.Duration) (topModel, tea.Cmd) {
	m.interval = d
	if m.asking || m.paused {
		return m, nil
	}
	m.turn++
	return m, m.wait()
}

func (m *topModel) scroll(key string) {
	at := &m.offsets[m.table]
	switch key {
	case "up":
		*at--
	case "down":
		*at++
	case "pgup":
		*at -= m.page()
	case "pgdown":
		*at += m.page()
	case "home":
		*at = 0
	case "end":
		*at = m.rowCount()
	}
}

// order changes what the table is sorted by, when it has such a column.
func (m *topModel) order(key string) {
	o := &m.orders[m.table]
	switch {
	case key == "r":
		o.reversed = !o.reversed
	case slices.ContainsFunc(topOrders[m.table], func(c orderChoice) bool { return c.key == key }):
		*o = topOrder{key: key}
	default:
		return
	}
	m.offsets[m.table] = 0
}

func (m *topModel) rowCount() int {
	switch m.table {
	case kindsTable:
		return len(m.overview.GetKinds())
	case workersTable:
		if m.workers == nil {
			return 0
		}
		return len(m.workers.list)
	default:
		return len(m.overview.GetTenants())
	}
}
