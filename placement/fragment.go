package placement

// offer is what a worker would have left.
type offer struct {
	cpu, mem int64
	free     []uint16
	whole    int // devices that are free as a whole
}

// lossStep is the smallest difference of a loss that counts, as a part of a device: what is below is a tie.
const lossStep = 1.0 / (1 << 14)

// loss is how much of a worker's devices becomes useless for what arrives when a form is placed there, beyond what it takes itself, and
// on which devices that is least.
func (d *demand) loss(m *member, f *form) (int32, Devices) {
	if len(m.free) == 0 {
		return 0, 0
	}
	now := offer{m.cpu, m.mem, m.free, m.whole}
	if m.worth.epoch != d.epoch {
		m.worth = worth{epoch: d.epoch, version: m.version - 1, table: d.tableFor(m)}
	}
	t := m.worth.table
	if m.worth.version != m.version {
		m.worth.version, m.worth.value = m.version, d.worth(t, &now)
	}
	var left [DevicesMax]uint16
	then := offer{now.cpu - f.cpu, now.mem - f.mem, left[:len(m.free)], m.whole}
	copy(then.free, m.free)
	var on Devices
	switch {
	case f.milli > 0:
		i := d.device(t, &then, f.milli)
		if then.free[i] == DeviceMilli {
			then.whole--
		}
		then.free[i] -= uint16(f.milli)
		on = on.with(i)
	case f.gpus > 0:
		for i := range then.free {
			if on.Len() < f.gpus && then.free[i] == DeviceMilli {
				on, then.free[i] = on.with(i), 0
			}
		}
		then.whole -= f.gpus
	}
	return int32((m.worth.value-d.worth(t, &then))/lossStep + 0.5), on
}

// worth is the part of the free devices that the arrivals can use, as the expectation over them: for each, the devices that are free
// enough for it if it fits at all (fitPart times), and of those what processors and memory suffice for if only such came (once). The
// second tells early that a worker will run out of processors before it runs out of devices.
func (d *demand) worth(t *table, o *offer) float32 {
	if o.cpu < 0 || o.mem < 0 {
		return 0
	}
	row := t.parts[t.row(rank(d.cpus, o.cpu), rank(d.mems, o.mem)):][:t.width]
	var enough [sharesMax + 2]float32 // free on devices of at least a rank
	fit := float32(0)
	for _, free := range o.free {
		at, part := d.shareAt[free], float32(free)*(1.0/DeviceMilli)
		fit += part * row[at]
		enough[at] += part
	}
	fit += float32(o.whole) * row[len(d.shares)+1+int(d.wholeAt[o.whole])]
	for i := len(d.shares); i > 0; i-- {
		enough[i-1] += enough[i]
	}
	often, cpu, mem := float32(0), float32(o.cpu), float32(o.mem)
	for i := range t.likely {
		l := &t.likely[i]
		if l.cpu > o.cpu {
			break
		}
		if l.mem > o.mem {
			continue
		}
		devices := enough[l.share&31]
		if l.whole > 0 {
			if devices = float32(o.whole); o.whole < int(l.whole) {
				continue
			}
		}
		often += l.weight * min(devices, cpu*l.perCPU, mem*l.perMem)
	}
	return (fitPart*fit + often) / (fitPart + 1)
}

// device chooses the one for a share: after which most of what is left of it and beside it fits, the tightest on ties.
func (d *demand) device(t *table, o *offer, milli int) int {
	row := t.parts[t.row(rank(d.cpus, max(o.cpu, 0)), rank(d.mems, max(o.mem, 0))):][:t.width]
	wholes := row[len(d.shares)+1:]
	best, least, tightest := -1, float32(0), 0
	for i, free := range o.free {
		free := int(free)
		if free < milli || free == tightest && best >= 0 {
			continue
		}
		loss := (float32(free)*row[d.shareAt[free]] - float32(free-milli)*row[d.shareAt[free-milli]]) * (1.0 / DeviceMilli)
		if free == DeviceMilli {
			loss += float32(o.whole)*wholes[d.wholeAt[o.whole]] - float32(o.whole-1)*wholes[d.wholeAt[o.whole-1]]
		}
		if best < 0 || loss < least || loss == least && free < tightest {
			best, least, tightest = i, loss, free
		}
	}
	return best
}
