#pragma once

namespace train::test {

/// Streams made from here on have no thread of their own: for tests that run all in one.
void guarded_streams_run_inline(bool on);

}  // namespace train::test
