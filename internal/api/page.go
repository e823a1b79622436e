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

// A page token is opaque: a cursor at full precision and a short hash of whose list it belongs to, so that a token of another
// tenant or another filter is refused instead of skipping rows.
const (
	pageBoundLen = 8
	pageTokenLen = pageBoundLen + 8 + 16
)

// pageBound hashes what a list depends on.
func pageBound(tenant string, filter proto.Message) [pageBoundLen]byte {
	raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(filter) // it was just decoded
	sum := sha256.Sum256(append(append([]byte(tenant), 0), raw...))
	return [pageBoundLen]byte(sum[:pageBoundLen])
}

func pageToken(c store.ListCursor, bound [pageBoundLen]byte) string {
	raw := make([]byte, 0, pageTokenLen)
	raw = append(raw, bound[:]...)
	raw = binary.BigEndian.AppendUint64(raw, uint64(c.CreatedAt.UnixMicro()))
	raw = append(raw, c.ID[:]...)
	return base64.RawURLEncoding.EncodeToString(raw)
}

func openPageToken(token string, bound [pageBoundLen]byte) (store.ListCursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != pageTokenLen {
		return store.ListCursor{}, invalid("page_token", "is not one that this service has given")
	}
	if !bytes.Equal(raw[:pageBoundLen], bound[:]) {
		return store.ListCursor{}, invalid("page_token", "belongs to another list: start again without it")
	}
	micros := int64(binary.BigEndian.Uint64(raw[pageBoundLen:]))
	return store.ListCursor{CreatedAt: time.UnixMicro(micros).UTC(), ID: scheduler.ID(raw[pageBoundLen+8:])}, nil
}
