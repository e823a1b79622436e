package placement

import (
	"fmt"
	"strings"
)

// Choice says in words what an attempt has of its worker, and what of its wishes the worker satisfies.
func (p *Pool) Choice(at Placement, n Need) string {
	m := p.members[at.Worker]
	if m == nil {
		return "on worker " + at.Worker.String()
	}
	name := m.worker.Name
	if name == "" {
		name = at.Worker.String()
	}
	words := []string{"on worker " + name}
	if m.worker.Zone != "" {
		words = append(words, "zone "+m.worker.Zone)
	}
	shape := n.shape()
	if shape.Near != "" {
		if m.worker.Zone == shape.Near {
			words = append(words, "as near as was asked")
		} else {
			words = append(words, "not in zone "+shape.Near+", which had no room")
		}
	}
	if f := n.form(); len(f.wishes) > 0 {
		met := 0
		for i := range f.wishes {
			if f.wishes[i].holds(m.worker.Labels) {
				met++
			}
		}
		words = append(words, fmt.Sprintf("%d of %d preferences met", met, len(f.wishes)))
	}
	var devices []string
	at.Devices.each(func(i int) { devices = append(devices, fmt.Sprint(i)) })
	if len(devices) > 0 {
		words = append(words, "GPU "+strings.Join(devices, ", "))
	}
	return strings.Join(words, "; ")
}
