// Command check reads manifests as strictly as an API server does with
// --validate=strict: a field that Kubernetes does not know, or knows twice, is a mistake.
//
// It is a module of its own, so that Kubernetes' types are no part of Berth's.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, autoscaling.AddToScheme, batch.AddToScheme, core.AddToScheme,
		networking.AddToScheme, policy.AddToScheme} {
		if err := add(known); err != nil {
			panic(err) // theirs, and never
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{Yaml: true, Strict: true})
	objects, bad := 0, 0
	for _, path := range os.Args[1:] {
		n, err := check(path, strict)
		objects += n
		if err != nil {
			bad++
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		}
	}
	if bad > 0 || objects == 0 {
		fmt.Fprintf(os.Stderr, "%d objects, %d files are wrong\n", objects, bad)
		os.Exit(1)
	}
	fmt.Printf("%d objects are as Kubernetes wants them\n", objects)
}

// check reads each object of a file.
func check(path string, strict runtime.Decoder) (objects int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var errs []error
	for r := yaml.NewYAMLReader(bufio.NewReader(f)); ; {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, errors.Join(errs...)
		}
		if err != nil {
			return objects, errors.Join(append(errs, err)...)
		}
		if _, _, err := strict.Decode(text, nil, nil); err != nil {
			errs = append(errs, err)
		}
		objects++
	}
}
