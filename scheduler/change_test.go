package scheduler

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func ptr[T any](v T) *T { return &v }

func TestUpdate(t *testing.T) {
	now := epoch.Add(10 * time.Second)
	late, soon := now.Add(time.Hour), now.Add(time.Minute)
	scheduled := func(k *Task) { // a retry
		k.State, k.RunAt, k.WakeAt, k.Due = Scheduled, late, late, late.Add(time.Minute)
	}
	for name, c := range map[string]struct {
		from   func(*Task)
		change Change
		want   func(*Task)
		field  string // refused for it
	}{
		"tier, with its default tolerance": {nil, Change{Tier: ptr(Urgent)}, func(k *Task) {
			k.Tier, k.Tolerance, k.Due = Urgent, time.Second, epoch.Add(time.Second)
		}, ""},
		"tier, with a tolerance of its own": {func(k *Task) { k.Tolerance = time.Hour }, Change{Tier: ptr(Deferrable)}, func(k *Task) {
			k.Tier, k.Tolerance, k.Due = Deferrable, time.Hour, epoch.Add(time.Hour)
		}, ""},
		"tier that needs more tolerance": {func(k *Task) { k.Tolerance = 11 * time.Second }, Change{Tier: ptr(Deferrable)}, nil, "delay_tolerance"},
		"tolerance":                      {nil, Change{Tolerance: ptr(20 * time.Second)}, func(k *Task) { k.Tolerance, k.Due = 20*time.Second, epoch.Add(20*time.Second) }, ""},
		"too little tolerance":           {nil, Change{Tolerance: ptr(time.Second)}, nil, "delay_tolerance"},
		"later": {nil, Change{RunAt: &late}, func(k *Task) {
			k.State, k.RunAt, k.WakeAt, k.Due, k.ReadyAt = Scheduled, late, late, late.Add(time.Minute), time.Time{}
		}, ""},
		"now, ready already": {nil, Change{RunAt: &time.Time{}}, func(*Task) {}, ""},
		"now": {scheduled, Change{RunAt: &time.Time{}}, func(k *Task) {
			k.State, k.RunAt, k.WakeAt, k.ReadyAt, k.Due = Ready, time.Time{}, time.Time{}, now, now.Add(time.Minute)
		}, ""},
		"at a time that is past": {scheduled, Change{RunAt: ptr(now)}, func(k *Task) {
			k.State, k.RunAt, k.WakeAt, k.ReadyAt, k.Due = Ready, time.Time{}, time.Time{}, now, now.Add(time.Minute)
		}, ""},
		"sooner": {scheduled, Change{RunAt: &soon}, func(k *Task) { k.RunAt, k.WakeAt, k.Due = soon, soon, soon.Add(time.Minute) }, ""},
		"tolerance of one that waits for its time": {scheduled, Change{Tolerance: ptr(time.Hour)}, func(k *Task) { k.Tolerance, k.Due = time.Hour, late.Add(time.Hour) }, ""},
		"start_by":                  {nil, Change{StartBy: &soon}, func(k *Task) { k.StartBy, k.WakeAt = soon, soon }, ""},
		"start_by that is past":     {nil, Change{StartBy: ptr(now)}, nil, "start_by"},
		"start_by before its time":  {scheduled, Change{StartBy: &soon}, nil, "start_by"},
		"run_at after its start_by": {func(k *Task) { k.StartBy, k.WakeAt = soon, soon }, Change{RunAt: &late}, nil, "run_at"},
		"both": {nil, Change{RunAt: &soon, StartBy: &late}, func(k *Task) {
			k.State, k.RunAt, k.StartBy, k.WakeAt, k.Due, k.ReadyAt = Scheduled, soon, late, soon, soon.Add(time.Minute), time.Time{}
		}, ""},
		"never useless": {func(k *Task) { k.StartBy, k.WakeAt = soon, soon }, Change{StartBy: &time.Time{}}, func(k *Task) { k.StartBy, k.WakeAt = time.Time{}, time.Time{} }, ""},
		"a retry beyond its start_by keeps it": {func(k *Task) { scheduled(k); k.StartBy, k.WakeAt = soon, soon }, Change{Tier: ptr(Urgent)}, func(k *Task) {
			k.Tier, k.Tolerance, k.Due = Urgent, time.Second, late.Add(time.Second)
		}, ""},
		"labels":    {func(k *Task) { k.Spec.Labels = map[string]string{"a": "b"} }, Change{SetLabels: true, Labels: map[string]string{"c": "d"}}, func(k *Task) { k.Spec.Labels = map[string]string{"c": "d"} }, ""},
		"no labels": {func(k *Task) { k.Spec.Labels = map[string]string{"a": "b"} }, Change{SetLabels: true}, func(k *Task) { k.Spec.Labels = nil }, ""},
		"nothing":   {nil, Change{}, func(*Task) {}, ""},
	} {
		from := taskIn(Ready)
		if c.from != nil {
			c.from(&from)
			if from.State == Ready {
				from.Due = from.ReadyAt.Add(from.Tolerance)
			}
		}
		got, err := from.Update(&c.change, now)
		var bad *BadChange
		switch {
		case c.field != "" && (!errors.As(err, &bad) || bad.Field != c.field || !reflect.DeepEqual(got, from)):
			t.Errorf("%s: %v, want it refused for %s and the old task", name, err, c.field)
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field == "":
			want := from
			c.want(&want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
			}
		}
	}
	for _, s := range allStates {
		want := ErrNotWaiting
		if s == Ready || s == Scheduled {
			want = nil
		}
		if _, err := taskIn(s).Update(&Change{Tier: ptr(Urgent)}, now); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", s, err, want)
		}
	}
	late2 := taskIn(Ready)
	late2.StartBy = now
	if _, err := late2.Update(&Change{StartBy: &late}, now); !errors.Is(err, ErrTooLate) {
		t.Errorf("past its start_by: %v, want ErrTooLate", err)
	}
}
