#pragma once

#include <caf/allowed_unsafe_message_type.hpp>

// The end of the report.
namespace train::actors {

/// Conductor -> reporter: The run is over: write what is left.
struct CloseReport {};

/// Report stream -> conductor: Everything is written.
struct ReportDrained {};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CloseReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReportDrained)
