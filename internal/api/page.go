package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/scheduler"
)

// A page token is opaque: a short hash of the list that it belongs to, and a cursor at full precision. A token of another list,
// tenant or filter is refused instead of skipping rows. It is no secret and grants nothing: every page asks for the caller's own rows.

const (
	pageSizeDefault = 50
	pageBoundLen    = 8
	taskCursorLen   = 8 + 16
)

// timeMax is the end of the years that a store holds, in seconds: as the rules in the .proto files say.
const timeMax = 253370764799

// pager makes and reads the tokens of one list.
type pager struct{ bound [pageBoundLen]byte }

// newPager returns the pager of a list; filter is what else the list depends on, nil for nothing.
func newPager(list, tenant string, filter proto.Message) pager {
	raw := append([]byte(list+"\x00"+tenant), 0)
	if filter != nil {
		more, _ := proto.MarshalOptions{Deterministic: true}.Marshal(filter) // it was just decoded
		raw = append(raw, more...)
	}
	sum := sha256.Sum256(raw)
	return pager{[pageBoundLen]byte(sum[:pageBoundLen])}
}

func (p pager) token(cursor []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(p.bound[:], cursor...))
}

// cursor reads a token; nil for an empty one.
func (p pager) cursor(token string) ([]byte, error) {
	if token == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	switch {
	case err != nil || len(raw) <= pageBoundLen:
		return nil, errPageToken()
	case !bytes.Equal(raw[:pageBoundLen], p.bound[:]):
		return nil, invalid("page_token", "belongs to another list: start again without it")
	}
	return raw[pageBoundLen:], nil
}

func errPageToken() error { return invalid("page_token", "is not one that this service has given") }

// pageSize is how many rows a page has.
func pageSize(asked int32) int {
	if asked <= 0 {
		return pageSizeDefault
	}
	return int(asked)
}

func taskCursor(c store.ListCursor) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(c.CreatedAt.UnixMicro())), c.ID[:]...)
}

// openTaskCursor reads what taskCursor wrote; nil for nothing.
func openTaskCursor(raw []byte) (*store.ListCursor, error) {
	if raw == nil {
		return nil, nil
	}
	if len(raw) != taskCursorLen {
		return nil, errPageToken()
	}
	micros := binary.BigEndian.Uint64(raw)
	if micros > timeMax*1_000_000 {
		return nil, errPageToken()
	}
	return &store.ListCursor{CreatedAt: time.UnixMicro(int64(micros)).UTC(), ID: scheduler.ID(raw[8:])}, nil
}
