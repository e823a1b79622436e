package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawID(t *rapid.T) ID { return ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")) }

func TestRefsComeBackAsTheyWerePrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := Ref{Region: rapid.StringMatching(`[a-z]([a-z0-9-]{0,61}[a-z0-9])?`).Draw(t, "region"), ID: drawID(t)}
		for _, text := range []string{ref.String(), ref.Region + "." + strings.ToUpper(ref.ID.String())} {
			if got, err := ParseRef(text); err != nil || got != ref {
				t.Fatalf("%s is read as %v, %v", text, got, err)
			}
		}
	})
}

// The order of the texts is the order of the bytes: whoever sorts handles sorts by shard, then by time.
func TestTextsAreInTheOrderOfTheIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawID(t), drawID(t)
		if a.Compare(b) != strings.Compare(a.String(), b.String()) {
			t.Fatalf("%s and %s compare as %d", a, b, a.Compare(b))
		}
	})
}

func TestIDsGrowWithTimeInsideAShard(t *testing.T) {
	at := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	late := [RandomBytes]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	want := []ID{
		NewID(0, time.Unix(-5, 0), late), // before the epoch: as at the epoch
		NewID(0, at, [RandomBytes]byte{}),
		NewID(0, at, late),
		NewID(0, at.Add(time.Millisecond), [RandomBytes]byte{}),
		NewID(0, at.AddDate(1000, 0, 0), [RandomBytes]byte{}),
		NewID(1, at, [RandomBytes]byte{}),
		NewID(255, at, [RandomBytes]byte{}),
	}
	got := slices.SortedFunc(slices.Values(want), ID.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	for i, shard := range []uint8{0, 0, 0, 0, 0, 1, 255} {
		if want[i].Shard() != shard || want[i].IsZero() {
			t.Errorf("%s is in shard %d, want %d", want[i], want[i].Shard(), shard)
		}
	}
	if !(ID{}).IsZero() {
		t.Error("the zero ID names a task")
	}
}

func TestBadRefs(t *testing.T) {
	good := NewID(3, time.Unix(1_700_000_000, 0), [RandomBytes]byte{1, 2, 3}).String()
	if _, err := ParseRef("here." + good); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":             "",
		"no region":         good,
		"empty region":      "." + good,
		"no id":             "here.",
		"upper-case region": "Here." + good,
		"region with NUL":   "he\x00re." + good,
		"region too long":   strings.Repeat("a", 64) + "." + good,
		"two dots":          "here.there." + good,
		"too short":         "here." + good[:25],
		"too long":          "here." + good + "0",
		"not base32":        "here." + good[:25] + "u",
		"letter l":          "here." + good[:25] + "l",
		"stray bits":        "here." + good[:25] + "1",
		"newline inside":    "here." + good[:12] + "\n" + good[13:],
		"spaces":            "here. " + good[1:],
		"not UTF-8":         "here." + good[:25] + "\xff",
		"kelvin sign":       "here." + good[:23] + "\u212a",
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := ParseRef(text)
			if !errors.Is(err, ErrBadID) || ref != (Ref{}) {
				t.Errorf("%q is read as %v, %v; want ErrBadID", text, ref, err)
			}
		})
	}
}

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "eu-west-1", "a0", strings.Repeat("a", 63)} {
		if !ValidName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "A", "1a", "-a", "a-", "a_b", "a.b", "a b", "ä", "a\x00", strings.Repeat("a", 64)} {
		if ValidName(name) {
			t.Errorf("%q is taken", name)
		}
	}
}

func TestSessionIDs(t *testing.T) {
	one := SessionID{0x12, 0x34, 15: 0xff}
	if got, want := one.String(), "12340000-0000-0000-0000-0000000000ff"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !(SessionID{}).IsZero() || one.IsZero() || one.Compare(one) != 0 || one.Compare(SessionID{0x12, 0x35}) >= 0 {
		t.Error("sessions are ordered by their bytes, and the zero value names none")
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("here." + ID{1, 2, 3}.String())
	f.Add("HERE.0")
	f.Add("a.\n")
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseRef(text)
		if err != nil {
			if !errors.Is(err, ErrBadID) || ref != (Ref{}) {
				t.Fatalf("%q: %v, %v", text, ref, err)
			}
			return
		}
		region, id, _ := strings.Cut(text, ".")
		if ref.String() != region+"."+strings.ToLower(id) {
			t.Fatalf("%q comes back as %q", text, ref)
		}
	})
}
