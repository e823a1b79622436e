package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// topTable is one of the tables that can be scrolled and sorted.
type topTable int

const (
	tenantsTable topTable = iota
	kindsTable
	workersTable
	topTables = 3 // how many there are
)

// topOrder is what a table is sorted by.
type topOrder struct {
	key      string // that chose it
	reversed bool
}

// orderChoice is a key and what it does, in words: from the beginning, and reversed.
type orderChoice struct{ key, words, reversed string }

// topOrders are what each table can be sorted by, the usual first.
var topOrders = [topTables][]orderChoice{
	tenantsTable: {
		{"o", "most open first", "fewest open first"},
		{"u", "most used first", "least used first"},
		{"l", "oldest due first", "oldest due last"},
		{"b", "longest bound first", "shortest bound first"},
		{"n", "by name", "by name, backwards"},
	},
	kindsTable: {
		{"n", "by name", "by name, backwards"},
		{"o", "most at hand first", "fewest at hand first"},
		{"u", "most used first", "least used first"},
	},
	workersTable: {{"n", "by name", "by name, backwards"}, {"o", "most slots first", "fewest slots first"}},
}

// words say how a table is sorted.
func (o topOrder) words(table topTable) string {
	for _, c := range topOrders[table] {
		if c.key == o.key && o.reversed {
			return c.reversed
		} else if c.key == o.key {
			return c.words
		}
	}
	return ""
}

// topColumn is a column. Text stands left, numbers right.
type topColumn struct {
	title string
	short string // where there is little room
	width int    // of what stands in it, at least
	text  bool
}

// topRow is a row.
type topRow struct {
	name  string
	cells []string
	ranks map[string]float64 // by the order's key: the least comes first. A row that has none comes last, in either direction.
}

// sortRows brings rows in order; what is equal is by name.
func sortRows(rows []topRow, o topOrder) {
	slices.SortStableFunc(rows, func(a, b topRow) int {
		byName := strings.Compare(a.name, b.name)
		if o.key == "n" && o.reversed {
			return -byName
		}
		x, hasX := a.ranks[o.key]
		y, hasY := b.ranks[o.key]
		switch {
		case hasX && !hasY:
			return -1
		case !hasX && hasY:
			return 1
		case o.reversed:
			return cmp.Or(cmp.Compare(y, x), byName)
		}
		return cmp.Or(cmp.Compare(x, y), byName)
	})
}

var tierColumns = []topColumn{
	{"TIER", "TIER", 10, true},
	{"OPEN", "OPEN", 7, false},
	{"AT HAND", "AT HAND", 7, false},
	{"RUNNING", "RUNNING", 7, false},
	{"HELD", "HELD", 7, false},
	{"UNSERVED", "UNSERVED", 8, false},
	{"OLDEST DUE", "OLDEST DUE", 10, false},
	{"BOUND", "BOUND", 6, false},
}

// topColumns are the columns of each table, the name first.
var topColumns = [topTables][]topColumn{
	tenantsTable: {
		{"TENANT", "TENANT", 8, true},
		{"WEIGHT", "WGT", 4, false},
		{"FAIR", "FAIR", 4, false},
		{"USED", "USED", 4, false},
		{"DEMOTED", "D", 1, true},
		{"URGENT", "URG", 5, false},
		{"STANDARD", "STD", 5, false},
		{"DEFERRABLE", "DEFER", 5, false},
		{"RUNNING", "RUN", 5, false},
		{"HELD", "HELD", 5, false},
		{"UNSERVED", "UNSRV", 5, false},
		{"OLDEST DUE", "DUE", 8, false},
		{"BOUND", "BOUND", 5, false},
	},
	kindsTable: {
		{"KIND", "KIND", 12, true},
		{"SLOTS", "SLOTS", 7, false},
		{"USED", "USED", 7, false},
		{"BUSY", "BUSY", 4, false},
		{"AT HAND", "AT HAND", 7, false},
	},
	workersTable: {
		{"NAME", "NAME", 12, true},
		{"TENANT", "TENANT", 12, true},
		{"SLOTS", "SLOTS", 24, true},
		{"STATE", "STATE", 12, true},
		{"SILENT", "SILENT", 6, false},
	},
}

// tierRows are the region's tiers. What is late is so by the store's clock, when the picture was drawn.
func tierRows(o *errandv1.Overview) []topRow {
	var rows []topRow
	for _, t := range o.GetTiers() {
		rows = append(rows, topRow{cells: []string{
			wordOf(t.GetTier().String(), "TIER_"), count(openOf(t)), count(t.GetAtHand()), count(t.GetRunning()), count(t.GetHeld()),
			count(t.GetUnserved()), dueText(o, t), boundText(t),
		}})
	}
	return rows
}

// openOf is how many open tasks are known: what instances have at hand may be newer than what the store has told them.
func openOf(t *errandv1.TierOverview) int64 { return max(t.GetOpen(), t.GetAtHand()+t.GetRunning()) }

func tenantRows(o *errandv1.Overview) []topRow {
	var rows []topRow
	for _, t := range o.GetTenants() {
		var sum errandv1.TierOverview
		open := map[errandv1.Tier]int64{}
		for _, tier := range t.GetTiers() {
			open[tier.GetTier()] = openOf(tier)
			sum.Open += openOf(tier)
			sum.Running += tier.GetRunning()
			sum.Held += tier.GetHeld()
			sum.Unserved += tier.GetUnserved()
			if due := tier.GetOldestDue(); due != nil && (sum.OldestDue == nil || due.AsTime().Before(sum.GetOldestDue().AsTime())) {
				sum.OldestDue = due
			}
			if tier.GetBound().AsDuration() > sum.GetBound().AsDuration() {
				sum.Bound = tier.GetBound()
			}
		}
		demoted := ""
		if t.GetDemoted() {
			demoted = "!"
		}
		row := topRow{name: t.GetTenant(), ranks: map[string]float64{"o": -float64(sum.GetOpen()), "u": -t.GetUsed()}, cells: []string{
			escaped(t.GetTenant()), weight(t.GetWeight()), percent(t.GetFair()), percent(t.GetUsed()), demoted,
			count(open[errandv1.Tier_TIER_URGENT]), count(open[errandv1.Tier_TIER_STANDARD]), count(open[errandv1.Tier_TIER_DEFERRABLE]),
			count(sum.GetRunning()), count(sum.GetHeld()), count(sum.GetUnserved()), dueText(o, &sum), boundText(&sum),
		}}
		if sum.GetOldestDue() != nil {
			row.ranks["l"] = float64(sum.GetOldestDue().AsTime().UnixMicro())
		}
		if sum.GetBound() != nil {
			row.ranks["b"] = -float64(sum.GetBound().AsDuration())
		}
		rows = append(rows, row)
	}
	return rows
}

func kindRows(o *errandv1.Overview) []topRow {
	var rows []topRow
	for _, k := range o.GetKinds() {
		busy := "-"
		if k.GetSlots() > 0 {
			busy = percent(float64(k.GetUsed()) / float64(k.GetSlots()))
		}
		rows = append(rows, topRow{
			name: k.GetKind(), ranks: map[string]float64{"o": -float64(k.GetAtHand()), "u": -float64(k.GetUsed())},
			cells: []string{escaped(k.GetKind()), count(k.GetSlots()), count(k.GetUsed()), busy, count(k.GetAtHand())},
		})
	}
	return rows
}

func workerRows(found *topWorkers) []topRow {
	if found == nil {
		return nil
	}
	var rows []topRow
	for _, w := range found.list {
		v, slots := workerViewOf(w), 0
		for _, n := range v.Slots {
			slots += n
		}
		state := "connected"
		switch {
		case v.Draining:
			state = "draining"
		case !v.Connected:
			state = "disconnected"
		}
		name := cmp.Or(v.Name, v.Worker)
		rows = append(rows, topRow{name: name, ranks: map[string]float64{"o": -float64(slots)}, cells: []string{
			escaped(name), escaped(dash(v.Tenant)), escaped(slotsText(v.Slots)), state, rough(w.GetSilent().AsDuration()),
		}})
	}
	return rows
}

// drawTable returns lines, the titles first. Without a width nothing is cut; in a narrow one the titles are short.
func drawTable(columns []topColumn, rows []topRow, width int) []string {
	short, widths := width > 0 && !fits(columns, width), make([]int, len(columns))
	rest := width + 1 // no space follows the last
	for i, c := range columns {
		title := c.title
		if short {
			title = c.short
		}
		widths[i] = max(c.width, len(title))
		rest -= widths[i] + 1
	}
	for i, c := range columns {
		need := 0
		for _, row := range rows {
			need = max(need, ansi.StringWidth(row.cells[i])-widths[i])
		}
		switch {
		case width == 0:
			widths[i] += need
		case c.text: // the first gets what it needs of the room that is left, then the next
			need = min(need, max(rest, 0))
			widths[i] += need
			rest -= need
		}
	}
	var line strings.Builder
	lines := make([]string, 0, len(rows)+1)
	add := func(cell func(i int) string) {
		line.Reset()
		for i := range columns {
			line.WriteString(fit(cell(i), widths[i], columns[i].text))
			line.WriteByte(' ')
		}
		lines = append(lines, line.String())
	}
	add(func(i int) string {
		if short {
			return columns[i].short
		}
		return columns[i].title
	})
	for _, row := range rows {
		add(func(i int) string { return row.cells[i] })
	}
	return lines
}

// fits tells whether a table with its long titles fits.
func fits(columns []topColumn, width int) bool {
	need := 0
	for _, c := range columns {
		need += max(c.width, len(c.title)) + 1
	}
	return need-1 <= width
}

// fit makes a text as wide as a column.
func fit(s string, width int, left bool) string {
	const cut = "..."
	if ansi.StringWidth(s) > width {
		s = ansi.Truncate(s, width, cut[:min(max(width-1, 0), len(cut))])
	}
	space := strings.Repeat(" ", max(width-ansi.StringWidth(s), 0))
	if left {
		return s + space
	}
	return space + s
}

// count shows a number in at most five characters.
func count(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	case n < 10_000_000_000:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	}
	return strconv.FormatInt(n/1_000_000_000, 10) + "G"
}

// weight shows a tenant's weight in four characters, up to 9999.
func weight(w float64) string {
	if w < 10 {
		return strconv.FormatFloat(w, 'g', 2, 64)
	}
	return strconv.FormatFloat(w, 'f', 0, 64)
}

// percent shows a part of one. A little is not nothing.
func percent(part float64) string {
	if part > 0 && part < 0.01 {
		return "<1%"
	}
	return strconv.Itoa(int(part*100+0.5)) + "%"
}

// rough shows a time span with one unit.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 100*time.Second:
		return fmt.Sprintf("%ds", d.Round(time.Second)/time.Second)
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", d.Round(time.Minute)/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d.Round(time.Hour)/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// dueText says how soon the oldest is due, or how late it is.
func dueText(o *errandv1.Overview, t *errandv1.TierOverview) string {
	if t.GetOldestDue() == nil || o.GetAt() == nil {
		return "-"
	}
	switch d := t.GetOldestDue().AsTime().Sub(o.GetAt().AsTime()); {
	case d >= time.Second/2:
		return "in " + rough(d)
	case d <= -time.Second/2:
		return rough(-d) + " late"
	}
	return "now"
}

func boundText(t *errandv1.TierOverview) string {
	if t.GetBound() == nil {
		return "-"
	}
	return rough(t.GetBound().AsDuration())
}
