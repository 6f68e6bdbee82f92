//! Setters of configurations.

/// Implements a setter `with_...` for each field of a configuration. It fails to compile if a field
/// is missing from the list. Private fields have no setter, and are listed after `private`.
///
/// Only crates of this project use it.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($config:ident {
        $($(#[$cfg:meta])* $setter:ident => $field:ident: $type:ty,)*
    } $(private { $($private:ident),* })?) => {
        impl $config {
            $(
                $(#[$cfg])*
                #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $setter(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }

        const _: fn($config) = |config| {
            let $config { $($(#[$cfg])* $field: _,)* $($($private: _,)*)? } = config;
        };
    };
}
