package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	"github.com/quic-go/quic-go/http3"
)

// files serves the files below the served folder.
type files struct{}

func (files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, err := file(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content)
}

func fetchHTTP3(ctx context.Context, config *tls.Config, urls []string) error {
	transport := &http3.Transport{TLSClientConfig: config}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	results := make(chan error, len(urls))
	for _, url := range urls {
		go func() {
			results <- func() error {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return err
				}
				answer, err := client.Do(request)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %s", url, answer.Status)
				}
				return store(request.URL.Path, answer.Body)
			}()
		}()
	}
	for range urls {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}
