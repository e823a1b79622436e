package placement

import (
	"slices"
	"strconv"
	"strings"
)

// amountMax bounds what a shape or a worker may say of any dimension, so that sums do not overflow.
const amountMax = 1 << 40

// form is a shape made ready to be compared with workers.
type form struct {
	shape      *Shape
	kind       string
	cpu, mem   int64
	slots      int
	gpus       int // whole devices
	milli      int // of one device
	impossible bool
	picky      bool // it cares for labels or a zone
	plain      bool // any free slot of its kind is as good as another
	selectors  []condition
	wishes     []condition
}

// match is how a worker's labels suit a form.
type match struct {
	selected bool
	wish     int32 // more is better
}

// condition is a selector that is quick to check.
type condition struct {
	key      string
	operator Operator
	values   []string
	bound    float64
	broken   bool // its value is no number: nothing satisfies it
	weight   int32
}

// nearWish is worth more than all preferences together.
const nearWish = 1 << 24

// wishMax bounds what preferences add up to.
const wishMax = nearWish - 1

var slotShape = &Shape{} // what a need without a shape asks

func (n *Need) shape() *Shape {
	if n.Shape == nil {
		return slotShape
	}
	return n.Shape
}

// form makes a need ready; of its fields the kind and the shape count.
func (n *Need) form() form {
	s := n.shape()
	f := form{
		shape: s, kind: n.Kind, cpu: amount(s.CPUMilli), mem: amount(s.MemoryMiB), slots: int(amount(max(s.Slots, 1))),
		gpus: int(amount(s.GPUs)), milli: int(amount(s.GPUMilli)),
	}
	f.impossible = f.gpus > DevicesMax || f.milli > DeviceMilli || f.gpus > 0 && f.milli > 0
	if f.milli == DeviceMilli { // the whole of one
		f.gpus, f.milli = 1, 0
	}
	for i := range s.Selectors {
		f.selectors = append(f.selectors, compile(&s.Selectors[i], 0))
	}
	for i := range s.Preferences {
		f.wishes = append(f.wishes, compile(&s.Preferences[i].Selector, s.Preferences[i].Weight))
	}
	f.picky = len(f.selectors)+len(f.wishes) > 0 || s.Near != ""
	f.plain = !f.picky && !f.impossible && f.slots == 1 && f.gpus == 0 && f.milli == 0
	return f
}

func amount(n int64) int64 { return min(max(n, 0), amountMax) }

func compile(s *Selector, weight int) condition {
	c := condition{key: s.Key, operator: s.Operator, values: s.Values, weight: int32(min(max(weight, 0), 100))}
	if s.Operator == Greater || s.Operator == Less {
		c.broken = true
		if len(s.Values) == 1 {
			bound, is := number(s.Values[0])
			c.bound, c.broken = bound, !is
		}
	}
	return c
}

func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return n, err == nil && n == n
}

func (c *condition) holds(labels map[string]string) bool {
	label, here := labels[c.key]
	switch c.operator {
	case In:
		return here && slices.Contains(c.values, label)
	case NotIn:
		return !here || !slices.Contains(c.values, label)
	case Exists:
		return here
	case Greater, Less:
		n, is := number(label)
		if !here || !is || c.broken {
			return false
		}
		return c.operator == Greater && n > c.bound || c.operator == Less && n < c.bound
	default:
		return false
	}
}

// devices is what it takes of devices, in thousandths of one.
func (f *form) devices() int { return f.gpus*DeviceMilli + f.milli }

// suits compares the form with labels and a zone.
func (f *form) suits(w *Worker) match {
	for i := range f.selectors {
		if !f.selectors[i].holds(w.Labels) {
			return match{}
		}
	}
	m := match{selected: true}
	for i := range f.wishes {
		if c := &f.wishes[i]; c.holds(w.Labels) {
			m.wish = min(m.wish+c.weight, wishMax)
		}
	}
	if near := f.shape.Near; near != "" && near == w.Zone {
		m.wish += nearWish
	}
	return m
}
