package scheduler

import (
	"bytes"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/regions"
)

// ID is the 16-byte identity of a task: one byte of shard, 48 bits of Unix milliseconds, 72 random
// bits. The shards of all regions are numbered through, sixteen for each region, so the byte also says which region's row it is. Keys of one shard stay together and grow with time, and the shards spread the load over the store's ranges.
type ID [16]byte

// RandomBytes is how many random bytes an ID needs from the caller.
const RandomBytes = 9

// NewID builds the ID of a task that is created at the given moment in the given shard.
// The randomness is an argument: this package has no source of its own.
func NewID(shard uint8, at time.Time, random [RandomBytes]byte) ID {
	var id ID
	id[0] = shard
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[1:7], ms[2:])
	copy(id[7:], random[:])
	return id
}

// Shard is the slice of its region's ready tasks that this task belongs to, numbered through over all regions.
func (id ID) Shard() uint8 { return id[0] }

// Region is the number of the region where the task's row lives, see [regions.Topology].
func (id ID) Region() uint8 { return id[0] / regions.ShardsPerRegion }

// IsZero tells whether the ID names no task.
func (id ID) IsZero() bool { return id == ID{} }

// Crockford's alphabet in lower case: no letter that is mistaken for a digit, and the order of the text is the order of the bytes.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// idTextLen is the length of an ID in text form.
const idTextLen = 26

// String prints the ID as 26 characters of Crockford base32.
func (id ID) String() string { return idText.EncodeToString(id[:]) }

// Compare orders IDs by their bytes: shard, then creation time.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// ErrBadID means that a text is not a task's handle (REGION.BASE32).
var ErrBadID = errors.New("not a task id")

// ParseID reads what [ID.String] printed.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != idTextLen {
		return id, fmt.Errorf("%w: want %d characters after the region, have %d", ErrBadID, idTextLen, len(text))
	}
	raw, err := idText.DecodeString(strings.ToLower(text))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("%w: not Crockford base32", ErrBadID)
	}
	copy(id[:], raw)
	if id.String() != strings.ToLower(text) {
		return ID{}, fmt.Errorf("%w: stray bits at the end", ErrBadID)
	}
	return id, nil
}

// Ref is a task's full name: the region where its row lives, and its ID there.
type Ref struct {
	Region string
	ID     ID
}

// String prints the handle that users see, REGION.BASE32.
func (r Ref) String() string { return r.Region + "." + r.ID.String() }

// ParseRef reads a handle. The region part follows the rule of [ValidName].
func ParseRef(text string) (Ref, error) {
	region, rest, found := strings.Cut(text, ".")
	if !found || !ValidName(region) {
		return Ref{}, fmt.Errorf("%w: want REGION.ID", ErrBadID)
	}
	id, err := ParseID(rest)
	if err != nil {
		return Ref{}, err
	}
	return Ref{Region: region, ID: id}, nil
}

// ValidName tells whether a text may name a region or a tenant: 1 to 63 of [a-z0-9-], first a letter, last not a dash.
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > 63 || name[0] < 'a' || name[0] > 'z' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// WorkerID is one run of a worker process. A name is never an identity: each process makes a fresh one.
type WorkerID = placement.WorkerID

// SessionID is one lease of a scheduler instance in the store; a restarted instance has a new one.
type SessionID [16]byte

// IsZero tells whether the value names no session.
func (s SessionID) IsZero() bool { return s == SessionID{} }

// String prints the session in the usual UUID form.
func (s SessionID) String() string { return placement.WorkerID(s).String() }

// Compare orders sessions by their bytes.
func (s SessionID) Compare(other SessionID) int {
	return bytes.Compare(s[:], other[:])
}

// Token is the fencing token of one attempt: whoever acts for the task names all three parts, and a write whose token is
// no longer the current one changes nothing.
type Token struct {
	ID      ID
	Attempt int64
	Worker  WorkerID
}
