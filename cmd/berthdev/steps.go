package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"berth/events"
)

// checkHandler answers the webhook step of the collection `checked`: by the
// file's name, so that every verdict can be had by hand.
func checkHandler(secret string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { check(w, r, secret) }
}

func check(w http.ResponseWriter, r *http.Request, secret string) {
	var ask struct {
		Data struct {
			Name string `json:"name"`
		} `json:"data"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = events.VerifySignature(r.Header, secret, body, time.Now())
	}
	if err == nil {
		err = json.Unmarshal(body, &ask)
	}
	if err != nil {
		http.Error(w, "not a request of a step", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"verdict": verdict(ask.Data.Name)})
}

func verdict(name string) string {
	switch {
	case strings.HasPrefix(name, "block-"):
		return "block"
	case strings.HasPrefix(name, "delete-"):
		return "delete"
	}
	return "pass"
}
