#!/bin/sh
read -r _
