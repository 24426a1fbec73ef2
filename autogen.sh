#!/bin/sh
# Make configure from configure.ac; needs autoconf, automake and libtool.
cd "$(dirname "$0")" && exec autoreconf --install --warnings=all
