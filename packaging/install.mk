# `make install PREFIX=/usr/local DESTDIR=` installs the product, and `make install-lab` installs the
# laboratory's commands. Both install files that are already built, so `sudo make install` compiles
# nothing. The makefile of crates/capi installs the C library.
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
# The commands to install. `make deb` sets them to smaller files.
COMMAND ?= $(built)/equic
LAB_COMMAND ?= $(built)/equic-lab
docs := $(filter-out docs/SUMMARY.md,$(wildcard docs/*.md)) docs/equic.example.toml CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT
# Folders of documentation pages. Links between pages need the same folders as in the source.
pages := $(patsubst docs/%,%,$(wildcard docs/tutorials/*.md docs/how-to/*.md docs/reference/*.md docs/explanation/*.md \
	docs/decisions/*.md))
dashboards := $(patsubst docs/%,%,$(wildcard docs/grafana/*))
# `equic plugin check` uses this program to look for proofs. It is installed only if it was built,
# because compiling it takes minutes (`make prove`).
prove := $(wildcard $(built)/equic-prove)
# Groups of commands of `equic`. Man pages have their names. Man pages of `equic-lab` also begin with
# `equic-`, so this list tells the two programs' pages apart.
groups := gateway serve get plugin man completions
# Headers that plugins are compiled with.
sdk := $(notdir $(wildcard plugins/sdk/*.h))
plugins := $(patsubst plugins/%/plugin.toml,%,$(wildcard plugins/*/plugin.toml))
capi := $(MAKE) --no-print-directory -C crates/capi PREFIX=$(PREFIX) LIBDIR=$(LIBDIR) \
	INCLUDEDIR=$(INCLUDEDIR) TARGET=$(TARGET) PROFILE=$(PROFILE) DESTDIR=$(DESTDIR)

# If this is set, the installed files may have assertions and overflow checks. The tests of the
# packages set it.
EQUIC_ASSERTIONS ?=

.PHONY: man install install-lab uninstall uninstall-lab deb is-built

is-built:
	@for file in equic equic-lab equic-sim libequic.so libequic.a equic_kern.o; do \
		test -e $(built)/$$file || { echo "there is no $(built)/$$file: run 'make build' first" >&2; exit 1; }; \
	done
	@test -n "$(EQUIC_ASSERTIONS)" || for file in $(COMMAND) $(LAB_COMMAND) $(built)/equic-sim $(built)/libequic.so; do \
		! scripts/assertions.sh "$$file" 2>/dev/null || \
			{ echo "$$file has assertions, as 'make test' builds it: run 'make build' first" >&2; exit 1; }; \
	done

man: is-built ## write the man pages to out/man
	@install -d out/man
	@$(built)/equic man --out out/man
	@$(built)/equic-lab man --out out/man
	@echo out/man

# Programs are installed without their line tables, which are four fifths of their size. The files
# in the target folder keep them.
install: is-built ## install command, library, man pages, completions and service (DESTDIR, PREFIX)
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(DOCDIR) $(UNITDIR) \
		$(BASHDIR) $(ZSHDIR) $(FISHDIR) $(DATADIR)/equic $(SYSCONFDIR)/equic)
	install -s -m 755 $(COMMAND) $(prove) $(DESTDIR)$(BINDIR)/
	$(capi) install
	install -m 644 $(addprefix plugins/sdk/,$(sdk)) $(DESTDIR)$(INCLUDEDIR)/
	for plugin in $(plugins); do \
		install -d $(DESTDIR)$(DATADIR)/equic/plugins/$$plugin && \
		install -m 644 plugins/$$plugin/$$plugin.c plugins/$$plugin/plugin.toml \
			$(DESTDIR)$(DATADIR)/equic/plugins/$$plugin/ || exit 1; \
	done
	install -m 755 scripts/prefixes-of $(DESTDIR)$(DATADIR)/equic/
	umask 022; $(built)/equic man --out $(DESTDIR)$(MANDIR)/man1
	umask 022; $(built)/equic completions bash >$(DESTDIR)$(BASHDIR)/equic
	umask 022; $(built)/equic completions zsh >$(DESTDIR)$(ZSHDIR)/_equic
	umask 022; $(built)/equic completions fish >$(DESTDIR)$(FISHDIR)/equic.fish
	install -m 644 $(docs) $(DESTDIR)$(DOCDIR)/
	for page in $(pages) $(dashboards); do install -D -m 644 docs/$$page $(DESTDIR)$(DOCDIR)/$$page || exit 1; done
	umask 022; sed -e 's|@BINDIR@|$(BINDIR)|' -e 's|@SYSCONFDIR@|$(SYSCONFDIR)|' -e 's|@DOCDIR@|$(DOCDIR)|' \
		packaging/equic-gateway.service >$(DESTDIR)$(UNITDIR)/equic-gateway.service
	test -e $(DESTDIR)$(SYSCONFDIR)/equic/equic.toml || \
		install -m 644 packaging/equic.toml $(DESTDIR)$(SYSCONFDIR)/equic/

install-lab: is-built ## install the laboratory in addition: equic-lab, equic-sim, man pages, completions
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(BASHDIR) $(ZSHDIR) $(FISHDIR))
	install -s -m 755 $(LAB_COMMAND) $(DESTDIR)$(BINDIR)/equic-lab
	install -s -m 755 $(built)/equic-sim $(DESTDIR)$(BINDIR)/
	umask 022; $(built)/equic-lab man --out $(DESTDIR)$(MANDIR)/man1
	umask 022; $(built)/equic-lab completions bash >$(DESTDIR)$(BASHDIR)/equic-lab
	umask 022; $(built)/equic-lab completions zsh >$(DESTDIR)$(ZSHDIR)/_equic-lab
	umask 022; $(built)/equic-lab completions fish >$(DESTDIR)$(FISHDIR)/equic-lab.fish

uninstall: ## remove the files of `make install`, except the configuration
	$(capi) uninstall
	rm -f $(addprefix $(DESTDIR),$(BINDIR)/equic $(BINDIR)/equic-prove \
		$(addprefix $(INCLUDEDIR)/,$(sdk)) $(UNITDIR)/equic-gateway.service \
		$(BASHDIR)/equic $(ZSHDIR)/_equic $(FISHDIR)/equic.fish)
	rm -f $(DESTDIR)$(MANDIR)/man1/equic.1 $(addprefix $(DESTDIR)$(MANDIR)/man1/equic-,$(addsuffix .1,$(groups)) \
		$(addsuffix -*.1,$(groups)))
	rm -rf $(DESTDIR)$(DATADIR)/equic/plugins
	rm -f $(DESTDIR)$(DATADIR)/equic/prefixes-of
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/,$(notdir $(docs)) $(pages) $(dashboards))
	for folder in $(addprefix $(DESTDIR)$(DOCDIR)/,$(sort $(dir $(pages) $(dashboards)))) $(DESTDIR)$(DOCDIR) \
		$(DESTDIR)$(DATADIR)/equic; do \
		! test -d $$folder || rmdir --ignore-fail-on-non-empty $$folder || exit 1; \
	done

uninstall-lab: ## remove the files of `make install-lab`
	rm -f $(addprefix $(DESTDIR),$(BINDIR)/equic-lab $(BINDIR)/equic-sim $(BASHDIR)/equic-lab $(ZSHDIR)/_equic-lab \
		$(FISHDIR)/equic-lab.fish) $(DESTDIR)$(MANDIR)/man1/equic-lab.1 $(DESTDIR)$(MANDIR)/man1/equic-lab-*.1

deb: setup build prove ## build Debian packages in out/ (compiles the commands again for size, which takes minutes)
	@$(CARGO) build --profile dist --locked --features boringssl,png -p equic-cli -p equic-lab-cli
	@COMMAND=$(TARGET)/dist/equic LAB_COMMAND=$(TARGET)/dist/equic-lab packaging/deb.sh
