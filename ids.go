package errand

import (
	"encoding/base32"
	"encoding/hex"
)

// Crockford's alphabet in lower case, as the scheduler prints ids.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// handle is a task's name as users see it.
func handle(region string, id [16]byte) string { return region + "." + idText.EncodeToString(id[:]) }

// instance is a worker instance in the usual UUID form.
func instance(id [16]byte) string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
