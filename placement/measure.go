package placement

import (
	"slices"
	"sort"
)

// Bounds of the tables. Where there are more different demands, they are rounded up to the next one that is told apart.
const (
	cutsMax   = 63 // amounts of a resource
	sharesMax = 31 // shares of a device
	wholesMax = 8  // numbers of whole devices above one
	tablesMax = 64 // ways in which labels may suit the arrivals
	likelyMax = 32 // types that are looked at one by one
)

// fitPart is how much "does it fit" counts beside "how often does it fit": see worth.
const fitPart = 3

// measures are the demands that are told apart, and the tables made of them. They are made anew in each epoch.
type measures struct {
	cpus, mems []int64 // ascending
	shares     []int   // of one device; a whole one is the largest
	wholes     []int   // numbers of devices, above one
	shareAt    [DeviceMilli + 1]uint8
	wholeAt    [DevicesMax + 1]uint8
	tables     map[typeSet]*table
	anyTable   *table
	kinds      []kindTypes
}

// kindTypes are the types of one kind: those that suit every worker that serves it, and those that may not.
type kindTypes struct {
	kind  string
	all   typeSet
	picky []int
}

// typeSet is a set of types.
type typeSet [typesMax / 64]uint64

func (s *typeSet) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s *typeSet) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

func newMeasures() measures { return measures{tables: map[typeSet]*table{}} }

// table tells, for the workers whose labels suit the same types, which part of the arrivals fits into what is left.
type table struct {
	width  int       // of a row: ranks of shares, then of numbers of whole devices
	mems   int       // ranks of memory
	parts  []float32 // by rank of processors, rank of memory, and that
	likely []likely  // ascending by processors
}

// likely is one of the types that arrive most.
type likely struct {
	cpu, mem       int64
	perCPU, perMem float32 // devices that the processors (memory) suffice for
	weight         float32
	share          uint8 // its rank; 0 for several devices
	whole          uint8 // several devices
}

// worth is how much of the free devices of a worker is useful for the arrivals.
type worth struct {
	epoch, version uint32
	table          *table
	value          float32
}

func (d *measures) cut(types []arrival) {
	d.tables, d.anyTable = map[typeSet]*table{}, nil
	var cpus, mems []int64
	var shares, wholes []int
	for i := range types {
		t := &types[i]
		cpus, mems = append(cpus, t.cpu), append(mems, t.mem)
		if t.gpus > 1 {
			wholes = append(wholes, t.gpus)
		} else {
			shares = append(shares, t.devices())
		}
	}
	d.cpus, d.mems = cuts(cpus, cutsMax), cuts(mems, cutsMax)
	d.shares, d.wholes = cuts(shares, sharesMax), cuts(wholes, wholesMax)
	d.sort(types)
	for i := range d.shareAt {
		d.shareAt[i] = uint8(rank(d.shares, i))
	}
	for i := range d.wholeAt {
		d.wholeAt[i] = uint8(rank(d.wholes, i))
	}
}

// sort puts the types to their kinds.
func (d *measures) sort(types []arrival) {
	d.kinds = nil
	at := map[string]int{}
	for i := range types {
		t := &types[i]
		if _, known := at[t.kind]; !known {
			at[t.kind] = len(d.kinds)
			d.kinds = append(d.kinds, kindTypes{kind: t.kind})
		}
		if k := &d.kinds[at[t.kind]]; t.picky {
			k.picky = append(k.picky, i)
		} else {
			k.all.add(i)
		}
	}
}

// cuts are at most limit of the different values, the largest among them.
func cuts[T int | int64](values []T, limit int) []T {
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) <= limit {
		return values
	}
	kept := make([]T, limit)
	for i := range kept {
		kept[i] = values[(i+1)*len(values)/limit-1]
	}
	return kept
}

// rank is how many of the cuts are not above a value.
func rank[T int | int64](cuts []T, value T) int {
	low, high := 0, len(cuts)
	for low < high {
		if middle := (low + high) / 2; cuts[middle] <= value {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// level is the rank from which on a demand fits.
func level[T int | int64](cuts []T, demand T) int {
	return sort.Search(len(cuts), func(i int) bool { return cuts[i] >= demand }) + 1
}

// tableFor finds the table for a worker.
func (d *demand) tableFor(m *member) *table {
	var signature typeSet
	for i := range d.kinds {
		k := &d.kinds[i]
		if m.seats[k.kind] == nil {
			continue
		}
		for at := range signature {
			signature[at] |= k.all[at]
		}
		for _, at := range k.picky {
			if m.suits(&d.types[at].form).selected {
				signature.add(at)
			}
		}
	}
	made := d.tables[signature]
	switch {
	case made != nil:
		return made
	case len(d.tables) < tablesMax:
		made = d.table(func(i int) bool { return signature.has(i) })
		d.tables[signature] = made
		return made
	case d.anyTable == nil:
		d.anyTable = d.table(func(int) bool { return true })
	}
	return d.anyTable
}

func (d *demand) table(suits func(i int) bool) *table {
	width := len(d.shares) + 1 + len(d.wholes) + 1
	t := &table{width: width, mems: len(d.mems) + 1, parts: make([]float32, (len(d.cpus)+1)*(len(d.mems)+1)*width)}
	for i := range d.types[:d.known] {
		a := &d.types[i]
		if !suits(i) {
			continue
		}
		var column int
		weight := float32(a.part)
		if a.gpus > 1 {
			column = len(d.shares) + 1 + level(d.wholes, a.gpus)
		} else {
			column = level(d.shares, a.devices())
		}
		t.parts[t.row(level(d.cpus, a.cpu), level(d.mems, a.mem))+column] += weight
		if len(t.likely) < likelyMax { // they stand in order of their weight
			t.likely = append(t.likely, d.likelyOf(a, weight))
		}
	}
	slices.SortStableFunc(t.likely, func(a, b likely) int { return int(a.cpu - b.cpu) })
	t.sum(len(d.cpus)+1, len(d.shares)+1)
	return t
}

func (d *demand) likelyOf(a *arrival, weight float32) likely {
	l := likely{cpu: a.cpu, mem: a.mem, weight: weight}
	size := float32(a.devices()) / DeviceMilli
	l.perCPU, l.perMem = size/float32(max(a.cpu, 1)), size/float32(max(a.mem, 1))
	if a.gpus > 1 {
		l.whole = uint8(a.gpus)
	} else {
		l.share = uint8(level(d.shares, a.devices()))
	}
	return l
}

func (t *table) row(cpu, mem int) int { return (cpu*t.mems + mem) * t.width }

// sum makes each part one of everything that needs no more, in each direction.
func (t *table) sum(cpus, shares int) {
	for c := range cpus {
		for m := range t.mems {
			row := t.parts[t.row(c, m):][:t.width]
			for i := 1; i < t.width; i++ {
				if i != shares {
					row[i] += row[i-1]
				}
			}
		}
	}
	for c := range cpus {
		for m := 1; m < t.mems; m++ {
			row, before := t.parts[t.row(c, m):][:t.width], t.parts[t.row(c, m-1):][:t.width]
			for i := range row {
				row[i] += before[i]
			}
		}
	}
	for c := 1; c < cpus; c++ {
		for m := range t.mems {
			row, before := t.parts[t.row(c, m):][:t.width], t.parts[t.row(c-1, m):][:t.width]
			for i := range row {
				row[i] += before[i]
			}
		}
	}
}
