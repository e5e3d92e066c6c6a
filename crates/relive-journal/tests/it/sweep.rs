//! Every point of a script at which it can be stopped, failed or cut off from power.
