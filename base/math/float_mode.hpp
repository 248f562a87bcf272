#pragma once

namespace train {

/// Sets the calling thread's floating-point mode to the default of IEEE 754, which all bits assume:
/// rounding to nearest, subnormal numbers kept, no traps.
///
/// A thread inherits the mode of its creator, and loading a library built with -ffast-math changes
/// it. So this is called first in main() and in each thread (by JoinedThread and the actor
/// systems), and after loading a foreign library.
void set_float_mode() noexcept;

}  // namespace train
