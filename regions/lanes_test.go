package regions

import (
	"testing"

	"pgregory.net/rapid"
)

func owners(n int) []Owner {
	all := make([]Owner, n)
	for i := range all {
		all[i] = Owner{byte(i + 1), byte(i * 37), 7}
	}
	return all
}

func count(lanes []Owner) map[Owner]int {
	held := map[Owner]int{}
	for _, o := range lanes {
		held[o]++
	}
	return held
}

// P3: every lane has exactly one owner, and no instance carries more than its share.
func TestEveryLaneIsOwnedAndLoadIsBounded(t *testing.T) {
	for n := 1; n <= InstancesPerRegion; n++ {
		lanes := Lanes(ShardsPerRegion, owners(n))
		if len(lanes) != ShardsPerRegion {
			t.Fatalf("%d instances: %d lanes, want %d", n, len(lanes), ShardsPerRegion)
		}
		floor := ShardsPerRegion / n
		ceil := (ShardsPerRegion + n - 1) / n
		for o, held := range count(lanes) {
			if (o == Owner{}) || held < floor || held > ceil {
				t.Errorf("%d instances: %x owns %d lanes, want %d to %d", n, o, held, floor, ceil)
			}
		}
	}
}

func TestLanesDoNotDependOnTheOrderOfInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, InstancesPerRegion).Draw(t, "instances")
		all := owners(n)
		want := Lanes(ShardsPerRegion, all)
		got := Lanes(ShardsPerRegion, rapid.Permutation(all).Draw(t, "order"))
		for i := range want {
			if want[i] != got[i] {
				t.Fatalf("shard %d: %x or %x, by the order of the list", i, want[i], got[i])
			}
		}
	})
}

// A lost instance moves its own lanes, and only few of the others' (those that rebalance floor and ceil).
func TestLosingAnInstanceMovesFewLanes(t *testing.T) {
	all := owners(8)
	before, after := Lanes(ShardsPerRegion, all), Lanes(ShardsPerRegion, all[1:])
	moved := 0
	for i := range before {
		if before[i] != after[i] && before[i] != all[0] {
			moved++
		}
	}
	if moved > ShardsPerRegion/2 {
		t.Errorf("%d lanes of surviving instances moved, want at most half", moved)
	}
}

func TestNoInstancesOwnNothing(t *testing.T) {
	if lanes := Lanes(ShardsPerRegion, nil); lanes != nil {
		t.Errorf("lanes without owners: %v", lanes)
	}
	if lanes := Lanes(ShardsPerRegion, owners(40)); len(count(lanes)) != InstancesPerRegion {
		t.Errorf("%d instances own lanes, want the bound %d", len(count(lanes)), InstancesPerRegion)
	}
}
