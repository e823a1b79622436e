package placement

import (
	"cmp"
	"math"
	"slices"
)

// Bounds of what is learned of the arrivals.
const (
	typesMax   = 512       // kinds of attempts that are told apart, of those that need devices
	typesKept  = 384       // of those, when there are more
	epochFirst = 16        // arrivals after which the weights are computed first,
	epochMax   = 16 * 1024 // and after how many more at the most
	turnPart   = 0.05      // of the arrivals that look different: then all scores are computed anew, else only those of changed workers
	memoryMax  = 64 * 1024 // arrivals that are remembered: beyond, each counts half
)

// demand is what the attempts that were placed lately looked like: what free capacity should stay useful for.
type demand struct {
	at     map[typeKey]int
	types  []arrival
	known  int // of the types, those that have a weight: the others came since
	total  float64
	seen   int    // arrivals since the weights were computed
	next   int    // arrivals until they are computed again
	epoch  uint32 // of the weights
	turned uint32 // the epoch in which they last became very different
	measures
}

type typeKey struct {
	kind  string
	shape *Shape
}

type arrival struct {
	form
	key     typeKey
	count   float64
	part    float64 // of the arrivals: its weight
	before  float64 // the same when the weights last became very different
	refused bool    // counted, and found no room since
}

func newDemand() demand {
	return demand{at: map[typeKey]int{}, next: epochFirst, epoch: 1, turned: 1, measures: newMeasures()}
}

// arrive counts an attempt that was placed, or not: then it counts once until one like it is, because whoever asks asks again.
func (d *demand) arrive(f *form, placed bool) {
	if f.devices() == 0 || f.impossible {
		return
	}
	key := typeKey{f.kind, f.shape}
	i, known := d.at[key]
	if !known {
		if len(d.types) == typesMax {
			d.learn()
		}
		i = len(d.types)
		d.at[key] = i
		d.types = append(d.types, arrival{form: *f, key: key})
	}
	t := &d.types[i]
	if !placed && t.refused {
		return
	}
	t.refused = !placed
	t.count++
	d.total++
	if d.seen++; d.seen >= d.next {
		d.learn()
	}
}

// learn makes new weights of what has arrived.
func (d *demand) learn() {
	if d.total > memoryMax {
		for i := range d.types {
			d.types[i].count /= 2
		}
	}
	slices.SortStableFunc(d.types, func(a, b arrival) int { return cmp.Compare(b.count, a.count) })
	if len(d.types) > typesKept {
		clear(d.types[typesKept:])
		d.types = d.types[:typesKept]
	}
	clear(d.at)
	d.total = 0
	for i := range d.types {
		d.at[d.types[i].key] = i
		d.total += d.types[i].count
	}
	d.seen, d.next = 0, min(max(int(d.total)/4, epochFirst), epochMax)
	d.epoch++
	d.known = len(d.types)
	d.cut(d.types)
	moved := 0.0
	for i := range d.types {
		t := &d.types[i]
		t.part = t.count / d.total
		moved += math.Abs(t.part-t.before) / 2
	}
	if moved <= turnPart {
		return
	}
	d.turned = d.epoch
	for i := range d.types {
		d.types[i].before = d.types[i].part
	}
}
