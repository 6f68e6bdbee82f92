//! The command `equic gateway detach`.

use std::path::PathBuf;

use equic_gateway::{Control, remove_pinned};
use serde_json::json;

use super::Target;
use crate::failure::Result;
use crate::output;

/// Detaches a gateway from its interfaces, whichever process runs it; that process then ends. The
/// pins of a pinned gateway are removed.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The gateway to detach, as with --gateway
    #[arg(value_name = "SELECTOR", conflicts_with = "gateway", hide = true)]
    selector: Option<String>,
    /// Detach the gateway only from this interface
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Detach the gateway that is pinned in this directory, even if another release of eQUIC
    /// started it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["selector", "gateway", "interface"])]
    pin: Option<PathBuf>,
    /// Print JSON (schema equic.gateway.detach/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    let interfaces = match &args.pin {
        Some(pin) => remove_pinned(pin)?,
        None => {
            let control = match &args.selector {
                Some(selector) => Control::open(Some(selector))?,
                None => args.target.open()?,
            };
            control.detach(args.interface.as_deref())?
        }
    };
    if args.json {
        return output::json("equic.gateway.detach/1", json!({ "interfaces": interfaces }));
    }
    if interfaces.is_empty() {
        return output::line("the gateway was not attached to any interface");
    }
    for interface in &interfaces {
        output::line(format_args!("detached from {}", interface.label()))?;
    }
    Ok(())
}
