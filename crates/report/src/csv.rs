//! Comma-separated values (RFC 4180), for spreadsheets and statistics programs.

use std::path::Path;

use serde::Serialize;

/// Error from formatting rows as CSV, or from writing the file.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// A row does not fit into the columns, because it has nested maps, or lists whose lengths
    /// differ from those in the first row.
    #[error("row {row} does not fit into a CSV line: {reason}; use rows with flat fields")]
    Row {
        /// Number of the row. The first row after the header is 1.
        row: usize,
        /// Reason why the row does not fit.
        reason: String,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] crate::WriteError),
}

/// Returns the rows as CSV. The header has the field names of the first row. Without rows, the text
/// is empty, because the field names are unknown.
///
/// # Errors
/// Fails with [`CsvError::Row`] if a row has a nested map, or a list whose length differs from that
/// in the first row.
pub fn to_string<T: Serialize>(rows: impl IntoIterator<Item = T>) -> Result<String, CsvError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let wrap = |row: usize, reason: String| CsvError::Row { row, reason };
    let mut last = 0;
    for (index, row) in rows.into_iter().enumerate() {
        last = index + 1;
        writer.serialize(row).map_err(|error| wrap(last, error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| wrap(last, error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| wrap(last, error.to_string()))
}

/// Writes the rows to a CSV file, in the format of [`to_string`]. The file is replaced atomically.
///
/// # Errors
/// Fails as [`to_string`] does, and with [`CsvError::Write`].
pub fn write<T: Serialize>(
    path: impl AsRef<Path>,
    rows: impl IntoIterator<Item = T>,
) -> Result<(), CsvError> {
    Ok(crate::file::write(path.as_ref(), to_string(rows)?.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row<'a> {
        phase: &'a str,
        requests_per_second: f64,
        failures: Option<u64>,
    }

    #[test]
    fn csv_has_a_header_quotes_and_empty_cells() {
        let rows = [
            Row { phase: "attack, no gateway", requests_per_second: 12.5, failures: None },
            Row { phase: "say \"hi\"", requests_per_second: 0.1, failures: Some(3) },
        ];
        assert_eq!(
            to_string(rows).unwrap(),
            "phase,requests_per_second,failures\n\"attack, no gateway\",12.5,\n\"say \"\"hi\"\"\",0.1,3\n"
        );
        assert_eq!(to_string(Vec::<Row<'_>>::new()).unwrap(), "");
    }

    #[test]
    fn csv_error_names_the_row_that_does_not_fit() {
        let rows = [vec![1, 2], vec![1, 2, 3]];
        let error = to_string(rows).unwrap_err();
        assert!(error.to_string().starts_with("row 2 does not fit"), "{error}");
    }

    #[test]
    fn csv_is_written_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        write(&path, [(1, "a"), (2, "b")]).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "1,a\n2,b\n");
    }
}
