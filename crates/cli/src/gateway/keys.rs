//! The command `equic gateway keys`.

use clap::Subcommand;
use serde_json::json;

use super::Target;
use crate::failure::Result;
use crate::output;

/// Actions on the keys of Retry tokens and connection IDs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Withdraw all keys, for example because they may have leaked, and create a new key
    Renew(Renew),
}

/// Creates a new key for Retry tokens and connection IDs, sends it to the servers that have joined,
/// and withdraws all other keys one second later.
#[derive(clap::Args)]
#[command(
    after_help = "Older Retry tokens become invalid, so a client in the middle of its handshake starts again. With `check_ids`, packets with older connection IDs pass for one more minute if their source holds a connection. In that minute, servers give their clients new connection IDs. If a user must not receive the new keys, first remove that user from `users` and restart the gateway. The process that runs the gateway must be alive, because it replaces the keys."
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
        "tokens and connection IDs are now made with a new key (epoch {epoch}); all older keys are withdrawn"
    ))
}
