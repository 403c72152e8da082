//! The colours of every picture.

use image::Rgb;

const fn rgb(hex: u32) -> Rgb<u8> {
    let [_, red, green, blue] = hex.to_be_bytes();
    Rgb([red, green, blue])
}

/// Behind the panels.
pub(crate) const PAGE: Rgb<u8> = rgb(0xF2F4F7);
/// Panels.
pub(crate) const PAPER: Rgb<u8> = rgb(0xFFFFFF);
/// Quiet areas on paper.
pub(crate) const SUNKEN: Rgb<u8> = rgb(0xF6F7F9);
/// Borders and rules.
pub(crate) const LINE: Rgb<u8> = rgb(0xD9DDE4);
/// Headings and values.
pub(crate) const INK: Rgb<u8> = rgb(0x1B2230);
/// Labels.
pub(crate) const MUTED: Rgb<u8> = rgb(0x6A7383);
/// Text of the environment.
pub(crate) const ENVIRONMENT: Rgb<u8> = rgb(0x1D5BC4);
/// Text of the model.
pub(crate) const MODEL: Rgb<u8> = rgb(0xC2182B);
/// Behind tokens under the loss.
pub(crate) const LOSS_TINT: Rgb<u8> = rgb(0xFFEBD1);
/// Below tokens under the loss.
pub(crate) const LOSS_LINE: Rgb<u8> = rgb(0xF28C1B);
/// Success, gain.
pub(crate) const GOOD: Rgb<u8> = rgb(0x1A7F45);
/// Behind success.
pub(crate) const GOOD_TINT: Rgb<u8> = rgb(0xDDF3E4);
/// Failure, loss.
pub(crate) const BAD: Rgb<u8> = rgb(0xB42318);
/// Behind failure.
pub(crate) const BAD_TINT: Rgb<u8> = rgb(0xFCE4E2);
/// Neither.
pub(crate) const WARN: Rgb<u8> = rgb(0x8A5A00);
/// Behind neither.
pub(crate) const WARN_TINT: Rgb<u8> = rgb(0xFBEFD3);
/// Chosen, current.
pub(crate) const CHOSEN: Rgb<u8> = rgb(0x4338CA);
/// Behind the chosen.
pub(crate) const CHOSEN_TINT: Rgb<u8> = rgb(0xE7E7FC);
