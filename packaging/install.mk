# Installing: `make install PREFIX=/usr/local DESTDIR=`. What is built by then is installed, so that
# `sudo make install` compiles nothing; the C side is crates/capi's.
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
DOCDIR ?= $(DATADIR)/doc/equic
MANDIR ?= $(DATADIR)/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR ?= $(DATADIR)/zsh/site-functions
FISHDIR ?= $(DATADIR)/fish/vendor_completions.d
SYSCONFDIR ?= /etc
DESTDIR ?=

TARGET ?= $(if $(CARGO_TARGET_DIR),$(abspath $(CARGO_TARGET_DIR)),$(CURDIR)/target)
PROFILE ?= release
built := $(TARGET)/$(PROFILE)
docs := $(wildcard docs/*.md) docs/equic.example.toml CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT
capi := $(MAKE) --no-print-directory -C crates/capi PREFIX=$(PREFIX) LIBDIR=$(LIBDIR) \
	INCLUDEDIR=$(INCLUDEDIR) TARGET=$(TARGET) PROFILE=$(PROFILE) DESTDIR=$(DESTDIR)

.PHONY: man install uninstall deb is-built

is-built:
	@for file in equic equic-sim libequic.so libequic.a equic_kern.o; do \
		test -e $(built)/$$file || { echo "there is no $(built)/$$file: run 'make build' first" >&2; exit 1; }; \
	done

man: is-built ## the man pages, into out/man
	@install -d out/man
	@$(built)/equic man --out out/man
	@echo out/man

install: is-built ## commands, library, man pages, completions, service: into DESTDIR and PREFIX
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(DOCDIR)/grafana $(UNITDIR) \
		$(BASHDIR) $(ZSHDIR) $(FISHDIR) $(SYSCONFDIR)/equic)
	install -m 755 $(built)/equic $(built)/equic-sim $(DESTDIR)$(BINDIR)/
	$(capi) install
	$(built)/equic man --out $(DESTDIR)$(MANDIR)/man1
	$(built)/equic completions bash >$(DESTDIR)$(BASHDIR)/equic
	$(built)/equic completions zsh >$(DESTDIR)$(ZSHDIR)/_equic
	$(built)/equic completions fish >$(DESTDIR)$(FISHDIR)/equic.fish
	install -m 644 $(docs) $(DESTDIR)$(DOCDIR)/
	install -m 644 docs/grafana/* $(DESTDIR)$(DOCDIR)/grafana/
	sed -e 's|@BINDIR@|$(BINDIR)|' -e 's|@SYSCONFDIR@|$(SYSCONFDIR)|' -e 's|@DOCDIR@|$(DOCDIR)|' \
		packaging/equic-gateway.service >$(DESTDIR)$(UNITDIR)/equic-gateway.service
	test -e $(DESTDIR)$(SYSCONFDIR)/equic/equic.toml || \
		install -m 644 packaging/equic.toml $(DESTDIR)$(SYSCONFDIR)/equic/

uninstall: ## remove that again, but for the configuration
	$(capi) uninstall
	rm -f $(addprefix $(DESTDIR),$(BINDIR)/equic $(BINDIR)/equic-sim $(UNITDIR)/equic-gateway.service \
		$(BASHDIR)/equic $(ZSHDIR)/_equic $(FISHDIR)/equic.fish)
	rm -f $(DESTDIR)$(MANDIR)/man1/equic.1 $(DESTDIR)$(MANDIR)/man1/equic-*.1
	rm -rf $(DESTDIR)$(DOCDIR)

deb: setup build ## a Debian package, into out/
	@packaging/deb.sh
