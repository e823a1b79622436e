package regions

import (
	"slices"
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

// Every lane has one owner out of the list, loads differ by at most one, and repeating a session changes nothing.
func TestLanesOfAnySessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		all := rapid.SliceOfNDistinct(drawOwner(), 1, InstancesPerRegion, rapid.ID[Owner]).Draw(t, "sessions")
		lanes := Lanes(shards, all)
		held := count(lanes)
		for _, o := range all {
			if n := held[o]; n < shards/len(all) || n > (shards+len(all)-1)/len(all) {
				t.Fatalf("%d of %d lanes for one of %d instances", n, shards, len(all))
			}
			delete(held, o)
		}
		if len(lanes) != shards || len(held) != 0 {
			t.Fatalf("%d lanes, and strangers own %v", len(lanes), held)
		}
		if !slices.Equal(lanes, Lanes(shards, append(slices.Clone(all), all...))) {
			t.Fatal("a session that is named twice changes the lanes")
		}
	})
}

func drawOwner() *rapid.Generator[Owner] {
	return rapid.Custom(func(t *rapid.T) Owner {
		return Owner(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "session"))
	})
}

func TestNoInstancesOwnNothing(t *testing.T) {
	if lanes := Lanes(ShardsPerRegion, nil); lanes != nil {
		t.Errorf("lanes without owners: %v", lanes)
	}
	if lanes := Lanes(ShardsPerRegion, owners(40)); len(count(lanes)) != InstancesPerRegion {
		t.Errorf("%d instances own lanes, want the bound %d", len(count(lanes)), InstancesPerRegion)
	}
}
