#pragma once

namespace train {

/// Sets how the calling thread computes with floating-point numbers to what IEEE 754 has as default
/// and all our bits assume: rounded to nearest, subnormal numbers kept on both sides, no trap.
///
/// A thread inherits the mode of the one that started it, and a library that was built with
/// -ffast-math changes it where it is loaded. So this is called first in main() and in each thread
/// (JoinedThread and the actor systems see to it), and after a library of others was loaded.
void set_float_mode() noexcept;

}  // namespace train
