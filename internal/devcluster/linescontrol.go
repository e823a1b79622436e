package devcluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// controlBytesMax is the longest request to change a link.
const controlBytesMax = 4 << 10

// Handler lets people and scripts look at the lines and change them:
//
//	GET  /lines                                                 what stands
//	POST /lines  {"between": ["r1", "store"], "state": "cut"}   or "open", "closed"; "factor": 10 for ten times the distance
//
// Both answer with what stands then. It asks nobody who they are: listen on the loopback interface only.
func (ls *Lines) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /lines", func(w http.ResponseWriter, _ *http.Request) { ls.answer(w) })
	mux.HandleFunc("POST /lines", func(w http.ResponseWriter, r *http.Request) {
		if err := ls.asked(http.MaxBytesReader(w, r.Body, controlBytesMax)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ls.answer(w)
	})
	return mux
}

func (ls *Lines) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ls.Status()) // to one who has gone, perhaps
}

func (ls *Lines) asked(body io.Reader) error {
	var change struct {
		Between []string `json:"between"`
		Change
	}
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&change); err != nil {
		return err
	}
	if len(change.Between) != 2 {
		return fmt.Errorf("between: name two ends, of which one may be %q", TheStore)
	}
	return ls.Set(change.Between[0], change.Between[1], change.Change)
}
