#pragma once

#include <pthread.h>
#include <signal.h>

namespace train::kernels {

/// Blocks every signal for as long as it lives, so that a thread started meanwhile inherits the
/// mask and signals reach the main thread. Not those of a fault of the thread itself, which a mask
/// would only keep from whoever reports it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace train::kernels
