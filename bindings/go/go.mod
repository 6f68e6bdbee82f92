module github.com/equic/equic/bindings/go

go 1.23
