package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// topHelp says what the keys do, and what the columns mean.
var topHelp = []string{
	"t tenants    k kinds    w workers of the region",
	"o open (kinds: at hand; workers: slots)    u used    l oldest due    b bound",
	"n name       r reverse",
	"up, down, PgUp, PgDn, Home, End scroll",
	"space pause and go on    + look less often    - look more often",
	"? help       q quit",
	"",
	"OPEN      scheduled, waiting and running",
	"AT HAND   ready, and known to an instance",
	"HELD      of those at hand: kept back by a pause, a cap or a limit",
	"UNSERVED  of those at hand: no worker has the kind",
	"DUE       of the oldest at hand that nothing but room keeps back",
	"BOUND     the longest that a task waits once it is ready, as things are",
	"FAIR      the part of the capacity that is the tenant's while all want more",
	"USED      its part of what was used over the last minute",
	"D !       demoted: its urgent work is served as standard",
}

// Reversed letters are for titles only: they tell nothing that the words do not, and they are no colour.
const (
	reverseOn  = "\x1b[7m"
	reverseOff = "\x1b[m"
)

// View draws the whole screen.
func (m topModel) View() tea.View {
	lines, titles := m.screen()
	for i, line := range lines {
		if titles[i] {
			lines[i] = reverseOn + fit(line, m.width, true) + reverseOff
		}
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

// screen is what stands on it, and which of the lines are titles.
func (m topModel) screen() (lines []string, titles map[int]bool) {
	lines, titles = m.head(), map[int]bool{}
	if m.help {
		lines = append(append(lines, ""), topHelp...)
	} else {
		at := len(lines)
		lines = append(append(lines, drawTable(tierColumns, tierRows(m.overview), m.width)...), "")
		titles[at], titles[len(lines)] = true, true
		rows := m.rows()
		first := m.offsets[m.table]
		last := min(first+m.page(), len(rows))
		table := drawTable(topColumns[m.table], rows, m.width) // all of it, so that columns do not move when it is scrolled
		lines = append(append(lines, table[0]), table[1:][first:last]...)
		for len(lines) < m.height-1 {
			lines = append(lines, "")
		}
		lines = append(lines, m.foot(first, last))
	}
	lines = lines[:min(len(lines), max(m.height, 1))]
	for i := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(lines[i], m.width, ""), " ")
	}
	return lines, titles
}

// rows are those of the table that is shown, in its order.
func (m topModel) rows() []topRow {
	var rows []topRow
	switch m.table {
	case kindsTable:
		rows = kindRows(m.overview)
	case workersTable:
		rows = workerRows(m.workers)
	default:
		rows = tenantRows(m.overview)
	}
	sortRows(rows, m.orders[m.table])
	return rows
}

// page is how many rows have room.
func (m topModel) page() int {
	const around = 3 + 1 + 1 + 1 + 1 // the head, the tiers' titles, a space, the table's titles, the foot
	return max(m.height-around-len(m.overview.GetTiers()), 1)
}

func (m topModel) head() []string {
	lines := append(headOf(m.overview, m.zone), "")
	lines[0] += "   every " + short(m.interval)
	switch {
	case m.paused:
		lines[len(lines)-1] = "paused: this is how it was; space goes on"
	case m.lost != "":
		lines[len(lines)-1] = fmt.Sprintf("no answer for %s: %s", rough(m.now.Sub(m.heard)), m.lost)
	}
	return lines
}

// headOf says which region, when, and what there is in all.
func headOf(o *errandv1.Overview, zone *time.Location) []string {
	at := "no picture yet"
	if o.GetAt() != nil {
		at = o.GetAt().AsTime().In(zone).Format("2006-01-02 15:04:05 MST")
	}
	instances := plural(int(o.GetInstances()), "instance")
	if silent := o.GetInstancesSilent(); silent > 0 {
		instances += fmt.Sprintf(", %d silent", silent)
	}
	var slots, used int64
	for _, k := range o.GetKinds() {
		slots, used = slots+k.GetSlots(), used+k.GetUsed()
	}
	return []string{
		fmt.Sprintf("region %s   %s", escaped(dash(o.GetRegion())), at),
		fmt.Sprintf("%s   %s   %s of %s slots busy", instances, plural(int(o.GetWorkers()), "worker"), count(used), count(slots)),
	}
}

// number counts things.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// foot says which rows of how many are shown, and how to get help.
func (m topModel) foot(first, last int) string {
	thing := [topTables]string{tenantsTable: "tenant", kindsTable: "kind", workersTable: "worker"}[m.table]
	text, more := plural(m.rowCount(), thing), ""
	switch {
	case m.table == workersTable && m.workers == nil:
		return "workers: not asked yet"
	case m.table == tenantsTable && m.overview.GetTenantsLeftOut() > 0:
		more = fmt.Sprintf(", %d more not listed", m.overview.GetTenantsLeftOut())
	case m.table == workersTable && m.workers.more:
		more = ", more are not listed"
	}
	if first > 0 || last < m.rowCount() {
		text = fmt.Sprintf("%d-%d of %s", first+1, last, text)
	}
	return text + more + ", " + m.orders[m.table].words(m.table) + "   ? help   q quit"
}

// pictureOf is an overview as a text of its own: all of it, one part below the other.
func pictureOf(o *errandv1.Overview, width int, zone *time.Location) string {
	lines := append(headOf(o, zone), "")
	lines = append(append(lines, drawTable(tierColumns, tierRows(o), width)...), "")
	lines = append(lines, drawTable(topColumns[tenantsTable], tenantRows(o), width)...)
	if more := o.GetTenantsLeftOut(); more > 0 {
		lines = append(lines, fmt.Sprintf("and %s", plural(int(more), "more tenant")))
	}
	lines = append(append(lines, ""), drawTable(topColumns[kindsTable], kindRows(o), width)...)
	var text strings.Builder
	for _, line := range lines {
		if width > 0 {
			line = ansi.Truncate(line, width, "")
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String()
}
