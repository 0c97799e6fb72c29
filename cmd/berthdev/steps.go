package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// checkHandler answers the webhook step of the collection `checked`: by the
// file's name, so that every verdict can be had by hand.
func checkHandler(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		File struct {
			Name string `json:"name"`
		} `json:"file"`
		Data struct {
			File struct {
				Name string `json:"name"`
			} `json:"file"`
		} `json:"data"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &ask)
	}
	if err != nil {
		http.Error(w, "not a request of a step", http.StatusBadRequest)
		return
	}
	name := ask.File.Name
	if name == "" {
		name = ask.Data.File.Name
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"verdict": verdict(name)})
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
