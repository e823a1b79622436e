package engine

import (
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of pictures.
const (
	// PictureTenantsMax is how many tenants a picture lists.
	PictureTenantsMax = 1000
	pictureEvery      = time.Second
	pictureRows       = 20_000 // buffered groups for which a picture may take a second longer to come
)

// drawn is the last picture.
type drawn struct {
	picture *scheduler.Picture
	at      time.Duration
}

// draw returns a picture that is not older than it may be, nil before the store's clock is known.
func (e *Engine) draw() *scheduler.Picture {
	if !e.home.opened {
		return nil
	}
	d := &e.drawn
	wait := pictureEvery + time.Duration(e.core.Counts().Groups/pictureRows)*time.Second
	if d.picture == nil || e.local-d.at >= wait {
		d.picture, d.at = e.core.Picture(e.storeNow(), PictureTenantsMax), e.local
	}
	return d.picture
}
