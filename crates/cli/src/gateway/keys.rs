//! The command `equic gateway keys`.

use clap::Subcommand;
use serde_json::json;

use super::Target;
use crate::failure::Result;
use crate::output;

/// Actions on the keys of Retry tokens and connection IDs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Withdraw all keys, because others may know them, and make a new one
    Renew(Renew),
}

/// Creates a new key for Retry tokens and connection IDs, sends it to the servers that have joined,
/// and withdraws all other keys one second later.
#[derive(clap::Args)]
#[command(
    after_help = "Older Retry tokens are no longer valid: a client in the middle of its handshake starts again. With \
`check_ids`, packets with older connection IDs pass for a minute if their source holds a connection; in that minute, \
servers give their clients new ones. If a user must not receive the new keys, remove that user from `users` first, \
and restart the gateway. The gateway's process must run, because it does this work."
)]
pub(crate) struct Renew {
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.keys/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> Result {
    let Command::Renew(args) = command;
    let control = args.target.open()?;
    let epoch = control.renew_keys()?.number();
    if args.json {
        return output::json("equic.gateway.keys/1", json!({ "epoch": epoch }));
    }
    output::line(format_args!(
        "tokens and connection IDs are made with a new key (epoch {epoch}); all others are withdrawn"
    ))
}
