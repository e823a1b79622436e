package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/errandhq/errand/placement"
)

// This file holds what the golden scripts say of machines, and how they ask why a task does not run.

// ofMachines are the facts of a worker that are no kinds.
var ofMachines = []string{"tenant", "cpu", "memory", "gpus", "zone", "label"}

func (w words) slots() map[string]int {
	slots := map[string]int{}
	for _, kind := range slices.Sorted(maps.Keys(w.facts)) {
		if !slices.Contains(ofMachines, kind) {
			slots[kind] = w.number(kind, 0)
		}
	}
	return slots
}

// machine is a worker that counts its processors, memory and devices; label=key:value.
func (w words) machine(id WorkerID) placement.Worker {
	m := placement.Worker{
		ID: id, Tenant: w.facts["tenant"], Slots: w.slots(), Zone: w.facts["zone"],
		Capacity: &placement.Resources{
			CPUMilli: int64(w.number("cpu", 0)), MemoryMiB: int64(w.number("memory", 0)), GPUs: int64(w.number("gpus", 0)),
		},
	}
	if key, value, set := strings.Cut(w.facts["label"], ":"); set {
		m.Labels = map[string]string{key: value}
	}
	return m
}

// shape is what a task needs of a worker; select=key:value.
func (w words) shape() *placement.Shape {
	s := placement.Shape{Resources: placement.Resources{
		CPUMilli: int64(w.number("cpu", 0)), MemoryMiB: int64(w.number("memory", 0)), GPUs: int64(w.number("gpus", 0)),
		GPUMilli: int64(w.number("gpu_milli", 0)), Slots: int64(w.number("slots", 0)),
	}}
	if key, value, set := strings.Cut(w.facts["select"], ":"); set {
		s.Selectors = []placement.Selector{{Key: key, Operator: placement.In, Values: []string{value}}}
	}
	if s.Resources == (placement.Resources{}) && s.Selectors == nil {
		return nil
	}
	return &s
}

// explain asks why a task does not run, and prints the answer and the closest workers.
func (s *script) explain(name string) {
	r := s.rows[s.tasks[name]].WaitingRow()
	h := s.core.Explain(&r, s.now)
	text := fmt.Sprintf("%s: %s", name, h.Obstacle())
	if h.Gate != "" {
		text += fmt.Sprintf(" (%s; %s)", h.Gated, h.Ease)
	}
	if h.Ahead > 0 {
		text += fmt.Sprintf(", %d before it", h.Ahead)
	}
	if !h.Start.IsZero() {
		text += ", starts " + s.at(h.Start)
	}
	s.printf("%s", text)
	for _, near := range h.Closest {
		s.printf("  %s: %s", s.workerName(near.Worker), strings.Join(near.Lacks, "; "))
	}
}
