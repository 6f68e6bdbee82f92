//! Finds the prefixes of autonomous systems and countries in published tables.
//!
//! Supported formats are:
//!
//! * CSV with a header: MaxMind's GeoLite2 blocks, and other files with the same columns;
//! * rows of ranges without a header: iptoasn.com with tabs, DB-IP lite with commas;
//! * the delegation files of the registries ("delegated-...-extended").
//!
//! The first line decides which format a file has. This library contains no data.
//!
//! The files are not trusted. One bad line makes the whole file invalid, and the error has the
//! line's number. Memory is bounded by the capacity of the gateway's lists.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use serde::{Deserialize, Serialize};

use super::listfile::{BAD, MOST, read_list, read_text};
use super::types::check_mapped;
use super::{ConfigError, Problem, parse_prefix};

/// A list file. Either every line is a prefix, or the file is a table of which some rows are
/// selected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct ListFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Numbers of the autonomous systems to select. If `country` is set, too, rows that match
    /// either are selected.
    pub asn: Vec<u32>,
    /// Two-letter codes (ISO 3166-1) of the countries to select.
    pub country: Vec<String>,
    /// A second file that maps each `geoname_id` to a country: GeoLite2's locations.
    pub locations: Option<PathBuf>,
}

/// The form in which a configuration file contains a [`ListFile`]. A list file without other fields
/// is written as its path only.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Path(PathBuf),
    Table {
        file: PathBuf,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        asn: Vec<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        country: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        locations: Option<PathBuf>,
    },
}

impl From<Written> for ListFile {
    fn from(written: Written) -> ListFile {
        match written {
            Written::Path(file) => ListFile { file, ..ListFile::default() },
            Written::Table { file, asn, country, locations } => {
                ListFile { file, asn, country, locations }
            }
        }
    }
}

impl From<ListFile> for Written {
    fn from(list: ListFile) -> Written {
        let ListFile { file, asn, country, locations } = list;
        if asn.is_empty() && country.is_empty() && locations.is_none() {
            return Written::Path(file);
        }
        Written::Table { file, asn, country, locations }
    }
}

/// Maximum length of a line in a table file, in bytes.
const LONGEST_LINE: usize = 4_096;
/// Maximum number of columns in a row of a table file.
const COLUMNS: usize = 64;
/// Maximum number of GeoLite2 locations that are kept in memory.
const LOCATIONS: usize = 1 << 20;

impl ListFile {
    /// Returns a file with one prefix per line.
    pub fn plain(file: impl Into<PathBuf>) -> ListFile {
        ListFile { file: file.into(), ..ListFile::default() }
    }

    /// Checks the description of a table, without opening the file.
    ///
    /// # Errors
    /// Returns a message for the operator that says what is invalid.
    pub fn check(&self) -> Result<(), String> {
        if self.file.as_os_str().is_empty() {
            return Err("the file is missing: write file = \"...\"".to_owned());
        }
        if self.is_plain() {
            return Err(
                "the table has neither `asn` nor `country`: add one of them, or, for a plain list of prefixes, write only the path of the file"
                    .to_owned(),
            );
        }
        match self.country.iter().find(|text| code(text).is_none()) {
            Some(text) => Err(bad(text, "a country code of two letters (ISO 3166-1)")),
            None => Ok(()),
        }
    }

    /// Returns true if every line is a prefix, and all of them are selected.
    pub fn is_plain(&self) -> bool {
        self.asn.is_empty() && self.country.is_empty()
    }

    /// Reads the selected prefixes. Adjacent prefixes are merged.
    ///
    /// # Errors
    /// Returns [`ConfigError::Problems`] with every bad line. Also fails if no row of the file is
    /// selected, or if a file cannot be read.
    pub fn read(&self) -> Result<Vec<IpNet>, ConfigError> {
        if self.is_plain() {
            return read_list(&self.file);
        }
        let locations = self.locations.as_ref().map(|path| Ok((path, read_text(path)?)));
        let locations = locations.transpose()?;
        let known = match &locations {
            Some((path, text)) => parse_locations(text).map_err(|error| error.in_file(path))?,
            None => HashMap::new(),
        };
        let text = read_text(&self.file)?;
        self.choose(&text, &known).map_err(|error| error.in_file(&self.file))
    }

    /// Does the same as [`ListFile::read`] with texts instead of files.
    ///
    /// # Errors
    /// Returns the errors of [`ListFile::read`], except for those of reading files.
    pub fn parse(&self, text: &[u8], locations: Option<&[u8]>) -> Result<Vec<IpNet>, ConfigError> {
        let known = locations.map_or_else(|| Ok(HashMap::new()), parse_locations)?;
        self.choose(text, &known)
    }

    fn choose(&self, text: &[u8], known: &Locations) -> Result<Vec<IpNet>, ConfigError> {
        let mut lines = Lines::of(text);
        let mut found = Vec::new();
        let mut layout = None;
        while let Some((number, line)) = lines.next() {
            let done = match &layout {
                None => Layout::of(line).and_then(|(read, is_header)| {
                    self.can_choose(&read, known)?;
                    let first =
                        if is_header { Ok(()) } else { self.row(&read, line, known, &mut found) };
                    layout = Some(read);
                    first
                }),
                Some(layout) => self.row(layout, line, known, &mut found),
            };
            if let Err(message) = done {
                lines.complain(number, message);
                if layout.is_none() || lines.problems.len() >= BAD {
                    break;
                }
            }
            if found.len() > MOST {
                lines.complain(number, format!("more than {MOST} prefixes are selected"));
                break;
            }
        }
        lines.done()?;
        if found.is_empty() {
            let message = format!("the file contains no prefix of {}", self.meant());
            return Err(ConfigError::problems(None, vec![Problem::of("", message)]));
        }
        Ok(IpNet::aggregate(&found))
    }

    /// Returns the selected AS numbers and countries as text for messages.
    fn meant(&self) -> String {
        let systems = self.asn.iter().map(|number| format!("AS{number}"));
        let all: Vec<String> = systems.chain(self.country.iter().cloned()).collect();
        all.join(", ")
    }

    fn can_choose(&self, layout: &Layout, known: &Locations) -> Result<(), String> {
        if !self.asn.is_empty() && !layout.says_asn() {
            return Err("the file has no column of AS numbers: remove `asn`, or use another file"
                .to_owned());
        }
        if !self.country.is_empty() && !layout.says_country() {
            return Err(
                "the file has no column of countries: remove `country`, or use another file"
                    .to_owned(),
            );
        }
        if !self.country.is_empty() && layout.needs_locations() && known.is_empty() {
            return Err(
                "the file names countries by geoname_id: set `locations` to the file with their countries, for example GeoLite2-Country-Locations-en.csv"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Adds the prefixes of a row to the result if the row is selected.
    fn row(
        &self,
        layout: &Layout,
        line: &str,
        known: &Locations,
        found: &mut Vec<IpNet>,
    ) -> Result<(), String> {
        let Some(row) = layout.row(line, known)? else { return Ok(()) };
        let asn = row.asn.is_some_and(|asn| self.asn.contains(&asn));
        let country = row.country.is_some_and(|code| {
            self.country.iter().any(|wanted| wanted.as_bytes().eq_ignore_ascii_case(&code))
        });
        match row.place {
            Place::Net(net) if asn || country => found.push(net),
            Place::Range(first, last) => {
                let nets = range(first, last)?;
                if asn || country {
                    refuse_all_mapped(first, last)?;
                    found.extend(nets);
                }
            }
            Place::Net(_) => {}
        }
        Ok(())
    }
}

/// Iterator over the lines of a text.
type Split<'a> = std::slice::Split<'a, u8, fn(&u8) -> bool>;

/// The lines of a text, and the problems found in them.
struct Lines<'a> {
    rest: std::iter::Enumerate<Split<'a>>,
    problems: Vec<Problem>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a [u8]) -> Lines<'a> {
        // A byte order mark at the start of the file is not part of the first line.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let is_end: fn(&u8) -> bool = |byte| *byte == b'\n';
        Lines { rest: text.split(is_end).enumerate(), problems: Vec::new() }
    }

    /// Returns the next line that is neither empty nor a comment, with its line number (counted
    /// from 1).
    fn next(&mut self) -> Option<(usize, &'a str)> {
        loop {
            let (index, line) = self.rest.next()?;
            let line = line.trim_ascii_end();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if self.problems.len() >= BAD {
                return None;
            }
            match std::str::from_utf8(line) {
                Ok(line) if line.len() <= LONGEST_LINE => return Some((index + 1, line)),
                Ok(_) => self
                    .complain(index + 1, format!("the line is longer than {LONGEST_LINE} bytes")),
                Err(_) => self.complain(index + 1, "the line is not UTF-8".to_owned()),
            }
        }
    }

    fn complain(&mut self, line: usize, message: String) {
        self.problems.push(Problem { line, column: 1, key: String::new(), message });
    }

    fn done(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(ConfigError::problems(None, self.problems))
    }
}

/// A country code of two letters.
type Country = [u8; 2];
/// Countries by `geoname_id`.
type Locations = HashMap<u32, Country>;

enum Place {
    Net(IpNet),
    Range(IpAddr, IpAddr),
}

struct Row {
    place: Place,
    asn: Option<u32>,
    country: Option<Country>,
}

/// Layout of a file: its separator, and the positions of addresses, AS numbers and countries.
#[derive(Debug, PartialEq, Eq)]
enum Layout {
    /// Comma-separated rows, with columns that a header names.
    Header(Columns),
    /// Rows with the first and last address of a range, then an AS number, a country, or both.
    Ranges { separator: char, asn: Option<usize>, country: Option<usize> },
    /// A registry's delegation file, with the columns `registry|cc|type|start|value|date|status`.
    Delegated,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Columns {
    net: Option<usize>,
    range: Option<(usize, usize)>,
    asn: Option<usize>,
    country: Option<usize>,
    geoname: Vec<usize>,
}

impl Layout {
    /// Detects the layout from the first line. The flag is true if that line is a header.
    fn of(line: &str) -> Result<(Layout, bool), String> {
        const UNKNOWN: &str = "unknown format of the prefix table: use CSV with a header, ranges separated by tabs \
                               or commas, or a registry's delegation file (docs/how-to/lists-and-bans.md)";
        if line.contains('|') {
            return Ok((Layout::Delegated, false));
        }
        let separator = if line.contains('\t') { '\t' } else { ',' };
        let fields = split(line, separator)?;
        let is_address = |text: &&str| text.parse::<IpAddr>().is_ok();
        if fields.len() >= 3 && fields[..2].iter().all(is_address) {
            let number = |at: usize| fields.get(at).is_some_and(|text| text.parse::<u32>().is_ok());
            let layout = match number(2) {
                true => {
                    let country = fields.get(3).and_then(|text| code(text)).map(|_| 3);
                    // In iptoasn.com's files, the fourth column is the country even if the first
                    // row has none there: for ranges that are not routed, it contains "None".
                    let country = country.or((separator == '\t' && fields.len() >= 4).then_some(3));
                    Layout::Ranges { separator, asn: Some(2), country }
                }
                false => Layout::Ranges { separator, asn: None, country: Some(2) },
            };
            return Ok((layout, false));
        }
        let named = |names: &[&str]| {
            fields.iter().position(|field| names.contains(&field.to_ascii_lowercase().as_str()))
        };
        let columns = Columns {
            net: named(&["network", "prefix", "cidr", "ip_prefix"]),
            range: named(&["start_ip", "ip_from", "range_start", "first_ip"]).zip(named(&[
                "end_ip",
                "ip_to",
                "range_end",
                "last_ip",
            ])),
            asn: named(&["autonomous_system_number", "asn", "as", "as_number"]),
            country: named(&["country_iso_code", "country_code", "country", "cc"]),
            geoname: ["geoname_id", "registered_country_geoname_id"]
                .iter()
                .filter_map(|name| named(&[name]))
                .collect(),
        };
        if separator != ',' || (columns.net.is_none() && columns.range.is_none()) {
            return Err(UNKNOWN.to_owned());
        }
        Ok((Layout::Header(columns), true))
    }

    fn says_asn(&self) -> bool {
        match self {
            Layout::Header(columns) => columns.asn.is_some(),
            Layout::Ranges { asn, .. } => asn.is_some(),
            Layout::Delegated => false,
        }
    }

    fn says_country(&self) -> bool {
        match self {
            Layout::Header(columns) => columns.country.is_some() || !columns.geoname.is_empty(),
            Layout::Ranges { country, .. } => country.is_some(),
            Layout::Delegated => true,
        }
    }

    fn needs_locations(&self) -> bool {
        matches!(self, Layout::Header(columns) if columns.country.is_none())
    }

    /// Parses a row. Returns `None` if it has no prefix.
    fn row(&self, line: &str, known: &Locations) -> Result<Option<Row>, String> {
        match self {
            Layout::Header(columns) => columns.row(&split(line, ',')?, known).map(Some),
            Layout::Ranges { separator, asn, country } => {
                let fields = split(line, *separator)?;
                let place = Place::Range(address(&fields, 0)?, address(&fields, 1)?);
                let asn = asn.map(|at| number(&fields, at)).transpose()?;
                let country = country.map(|at| field(&fields, at)).transpose()?.and_then(code);
                Ok(Some(Row { place, asn, country }))
            }
            Layout::Delegated => delegated(line),
        }
    }
}

impl Columns {
    fn row(&self, fields: &[&str], known: &Locations) -> Result<Row, String> {
        let place = match (self.net, self.range) {
            (Some(at), _) => {
                Place::Net(parse_prefix(field(fields, at)?).map_err(|error| error.to_string())?)
            }
            (None, Some((first, last))) => {
                Place::Range(address(fields, first)?, address(fields, last)?)
            }
            (None, None) => return Err("the row has no prefix".to_owned()),
        };
        let asn = match self.asn.map(|at| field(fields, at)).transpose()? {
            None | Some("") => None,
            Some(text) => Some(as_number(text)?),
        };
        let country = match self.country {
            Some(at) => code(field(fields, at)?),
            None => {
                let mut country = None;
                for at in &self.geoname {
                    let text = field(fields, *at)?;
                    if country.is_none() && !text.is_empty() {
                        let id = text.parse().map_err(|_| bad(text, "a geoname_id"))?;
                        country = known.get(&id).copied();
                    }
                }
                country
            }
        };
        Ok(Row { place, asn, country })
    }
}

/// Parses a row of a registry: IPv4 with a number of addresses, IPv6 with a prefix length.
fn delegated(line: &str) -> Result<Option<Row>, String> {
    let mut fields = line.split('|');
    let mut next = || fields.next().unwrap_or_default();
    let (_, country, kind, start, value) = (next(), next(), next(), next(), next());
    // The version line, the summary lines, and the rows of AS numbers contain no prefixes.
    if !matches!(kind, "ipv4" | "ipv6") || start == "*" {
        return Ok(None);
    }
    let first: IpAddr = start.parse().map_err(|_| bad(start, "an address"))?;
    let place = match first {
        IpAddr::V4(first) if kind == "ipv4" => {
            let count: u32 = value.parse().map_err(|_| bad(value, "a number of addresses"))?;
            let last = count.checked_sub(1).and_then(|count| first.to_bits().checked_add(count));
            let last = last.ok_or_else(|| {
                bad(value, "a valid number of addresses, because the range would end beyond the last address")
            })?;
            Place::Range(first.into(), IpAddr::V4(last.into()))
        }
        IpAddr::V6(_) if kind == "ipv6" => {
            let net =
                parse_prefix(&format!("{start}/{value}")).map_err(|error| error.to_string())?;
            Place::Net(net)
        }
        _ => return Err(bad(start, kind)),
    };
    Ok(Some(Row { place, asn: None, country: code(country) }))
}

/// Parses the countries from GeoLite2's file of locations.
fn parse_locations(text: &[u8]) -> Result<Locations, ConfigError> {
    let (mut lines, mut known) = (Lines::of(text), Locations::new());
    let mut columns = None;
    while let Some((number, line)) = lines.next() {
        let done = split(line, ',').and_then(|fields| match columns {
            None => {
                let named = |name| fields.iter().position(|field| *field == name);
                columns = named("geoname_id").zip(named("country_iso_code"));
                let wrong =
                    "the file has no header with the columns `geoname_id` and `country_iso_code`";
                columns.map(drop).ok_or_else(|| wrong.to_owned())
            }
            Some((id, country)) => {
                let id = field(&fields, id)?;
                let id: u32 = id.parse().map_err(|_| bad(id, "a geoname_id"))?;
                if let Some(country) = code(field(&fields, country)?) {
                    known.insert(id, country);
                }
                Ok(())
            }
        });
        if let Err(message) = done {
            lines.complain(number, message);
        }
        if known.len() > LOCATIONS {
            lines.complain(
                number,
                format!("the file has more than {LOCATIONS} locations, which is the maximum"),
            );
        }
        if columns.is_none() || known.len() > LOCATIONS {
            break;
        }
    }
    lines.done().map(|()| known)
}

/// Splits a line into its fields. Enclosing quotes are removed. Doubled quotes inside them stay as
/// they are.
fn split(line: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut fields, mut rest) = (Vec::new(), line);
    loop {
        if fields.len() >= COLUMNS {
            return Err(format!("the row has more than {COLUMNS} columns"));
        }
        let (field, after) = match rest.strip_prefix('"').filter(|_| separator == ',') {
            Some(quoted) => {
                let end = closing(quoted)
                    .ok_or("the row has an opening quote without a closing quote")?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => rest.split_at(rest.find(separator).unwrap_or(rest.len())),
        };
        fields.push(field.trim());
        match after.strip_prefix(separator) {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => {
                return Err(
                    "the row has text between a closing quote and the next separator".to_owned()
                );
            }
        }
    }
}

/// Returns the position of the quote that ends a field. A doubled quote is part of the field.
fn closing(quoted: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + quoted[from..].find('"')?;
        if !quoted[at + 1..].starts_with('"') {
            return Some(at);
        }
        from = at + 2;
    }
}

fn field<'a>(fields: &[&'a str], at: usize) -> Result<&'a str, String> {
    fields.get(at).copied().ok_or_else(|| {
        format!("the row has {} columns, but needs at least {}", fields.len(), at + 1)
    })
}

fn address(fields: &[&str], at: usize) -> Result<IpAddr, String> {
    let text = field(fields, at)?;
    text.parse().map_err(|_| bad(text, "an address"))
}

fn number(fields: &[&str], at: usize) -> Result<u32, String> {
    as_number(field(fields, at)?)
}

/// Parses an AS number, with or without the prefix `AS`.
fn as_number(text: &str) -> Result<u32, String> {
    let digits = text.get(..2).filter(|start| start.eq_ignore_ascii_case("AS"));
    let digits = digits.map_or(text, |_| &text[2..]);
    digits.parse().map_err(|_| bad(text, "an AS number"))
}

/// Returns the two letters of a country. Returns `None` for any other text, such as an empty field.
fn code(text: &str) -> Option<Country> {
    let letters: Country = text.as_bytes().try_into().ok()?;
    letters
        .iter()
        .all(u8::is_ascii_alphabetic)
        .then(|| letters.map(|byte| byte.to_ascii_uppercase()))
}

/// Returns an error if the range covers all IPv4-mapped addresses, like [`check_mapped`] for
/// prefixes.
fn refuse_all_mapped(first: IpAddr, last: IpAddr) -> Result<(), String> {
    let all =
        IpNet::new(first, 96).ok().filter(|net| (net.network(), net.broadcast()) == (first, last));
    match all.map(|all| (all, check_mapped(all))) {
        Some((all, Err(why))) => Err(format!("{all} is not {why}")),
        _ => Ok(()),
    }
}

/// Returns the prefixes that make up a range: at most 62 for IPv4, 254 for IPv6. A range of
/// IPv4-mapped addresses becomes an IPv4 range, because the lists are compared by prefix, and a
/// prefix must not have two forms. A range that also contains other addresses remains an IPv6
/// range.
fn range(first: IpAddr, last: IpAddr) -> Result<Box<dyn Iterator<Item = IpNet>>, String> {
    let (first, last) = match (first.to_canonical(), last.to_canonical()) {
        (IpAddr::V4(low), IpAddr::V4(high)) if first.is_ipv6() && last.is_ipv6() => {
            (IpAddr::V4(low), IpAddr::V4(high))
        }
        _ => (first, last),
    };
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
            Ok(Box::new(Ipv4Subnets::new(first, last, 0).map(IpNet::V4)))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
            Ok(Box::new(Ipv6Subnets::new(first, last, 0).map(IpNet::V6)))
        }
        _ => Err(format!("{first} to {last} is not a valid range of addresses")),
    }
}

fn bad(text: &str, what: &str) -> String {
    let shown: String = text.chars().take(64).collect();
    format!("`{shown}` is not {what}")
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
